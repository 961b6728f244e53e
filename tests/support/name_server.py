"""Name servers, for one process or for a node, with the answers that a test gives."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

silent_dns_needed = pytest.mark.needs("unshare")
A, AAAA = 1, 28
NO_ERROR, SERVER_FAILURE, NO_SUCH_NAME = 0, 2, 3
_HEADER_BYTES = 12
_NAME_OF_QUESTION = 0xC00C
# Each process has an address of its own, because several of them run tests at the same time.
_ADDRESS = f"127.67.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"


@dataclass(frozen=True)
class Query:
    """A query with one question."""

    packet: bytes
    name: str
    kind: int

    def answer(self, *addresses: str, code: int = NO_ERROR) -> bytes:
        """Return an answer with those of the addresses that the query asks for."""
        family = socket.AF_INET6 if self.kind == AAAA else socket.AF_INET
        packed = [
            socket.inet_pton(family, each)
            for each in addresses
            if self.kind in (A, AAAA) and (":" in each) == (self.kind == AAAA)
        ]
        records = b"".join(
            struct.pack("!HHHLH", _NAME_OF_QUESTION, self.kind, 1, 4, len(each)) + each
            for each in packed
        )
        header = struct.pack("!HHHHH", 0x8180 | code, 1, len(packed), 0, 0)
        return self.packet[:2] + header + self.packet[_HEADER_BYTES:] + records


@dataclass
class NameServer:
    """A running name server, and the names that it was asked for."""

    command: list[str]
    """The beginning of a command line: what follows uses this name server."""
    asked: list[str] = field(default_factory=list)


Answer = Callable[[Query], bytes | None]


@contextmanager
def name_server(directory: Path, answer: Answer, *lines: str) -> Iterator[NameServer]:
    """Answer over UDP while the block runs. `lines` are further lines of resolv.conf.

    Without an answer (None), the client asks again.
    """
    file = directory / "resolv.conf"
    file.write_text("\n".join([f"nameserver {_ADDRESS}", *lines, ""]))
    mount = f'mount --bind {file} /etc/resolv.conf && exec "$0" "$@"'
    server = NameServer(["unshare", "--mount", "sh", "-c", mount])

    def note_and_answer(query: Query) -> bytes | None:
        server.asked.append(query.name)
        return answer(query)

    with answering(_ADDRESS, note_and_answer):
        yield server


@contextmanager
def silent_dns(directory: Path) -> Iterator[list[str]]:
    """The beginning of a command line: what follows asks a name server that does not answer.

    Each look-up then takes 150 s. Names in /etc/hosts are found as before.
    """
    with name_server(directory, lambda _query: None, "options timeout:30 attempts:5") as server:
        yield server.command


@contextmanager
def answering(address: str, answer: Answer) -> Iterator[None]:
    """Answer queries to an address over UDP while the block runs."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
        endpoint.bind((address, 53))
        thread = threading.Thread(target=_serve, args=(endpoint, answer), daemon=True)
        thread.start()
        try:
            yield
        finally:
            # This ends `recvfrom`, although it fails for a socket that is not connected.
            with suppress(OSError):
                endpoint.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(endpoint: socket.socket, answer: Answer) -> None:
    while True:
        packet, client = endpoint.recvfrom(512)
        if not packet:
            return  # shut down
        try:
            answered = answer(_parse(packet))
        except (IndexError, UnicodeDecodeError, struct.error):
            continue  # It is no query.
        if answered is not None:
            with suppress(OSError):  # It can be shut down at this moment.
                endpoint.sendto(answered, client)


def _parse(packet: bytes) -> Query:
    labels, position = [], _HEADER_BYTES
    while length := packet[position]:
        labels.append(packet[position + 1 : position + 1 + length].decode("ascii"))
        position += 1 + length
    (kind,) = struct.unpack_from("!H", packet, position + 1)
    return Query(packet, ".".join(labels), kind)
