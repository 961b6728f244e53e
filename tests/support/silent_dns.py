"""A machine whose name server never answers, for one process at a time."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Each process has an address of its own, because several of them run tests at the same time.
_ADDRESS = f"127.66.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"


silent_dns_needed = pytest.mark.needs("unshare")


@contextmanager
def silent_dns(directory: Path) -> Iterator[list[str]]:
    """The beginning of a command line: what follows asks a name server that does not answer.

    Each look-up then takes 150 s. Names in /etc/hosts are found as before.
    """
    file = directory / "resolv.conf"
    file.write_text(f"nameserver {_ADDRESS}\noptions timeout:30 attempts:5\n")
    mount = f'mount --bind {file} /etc/resolv.conf && exec "$0" "$@"'
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as name_server:
        name_server.bind((_ADDRESS, 53))
        yield ["unshare", "--mount", "sh", "-c", mount]
