"""Debian's docker-registry on a directory: filled outside the node's namespaces, served inside."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import yaml

from tests.support.kube.server import Server

PROGRAM = "docker-registry"
ADDRESS = "127.0.0.1:5000"
"""Runtimes pull from a loopback address without TLS."""
SECOND_ADDRESS = "127.0.0.1:5001"
"""That of a registry with a controller's own images."""


@contextmanager
def serve(
    data: Path, log: Path, address: str = ADDRESS, *, writable: bool = False
) -> Iterator[str]:
    """Serve a directory until the block ends. Yield the address.

    A directory that is served is not removed from the cache.
    """
    program = shutil.which(PROGRAM)
    assert program, f"{PROGRAM} is not installed: apt install docker-registry"
    configuration = log.with_suffix(".yml")
    storage = {
        "filesystem": {"rootdirectory": str(data)},
        "maintenance": {"readonly": {"enabled": not writable}},
    }
    written = {"version": "0.1", "storage": storage, "http": {"addr": address, "secret": "s"}}
    configuration.write_text(yaml.safe_dump(written))
    with ExitStack() as stack:
        directory = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, directory)
        fcntl.flock(directory, fcntl.LOCK_SH)
        server = Server(Path(program), ("serve", str(configuration)), log)
        stack.callback(server.stop)
        server.start()
        client = stack.enter_context(httpx.Client(base_url=f"http://{address}", trust_env=False))

        def answers() -> bool:
            try:
                return client.get("/v2/").status_code == 200
            except httpx.TransportError:
                return False

        server.await_that(answers)
        yield address
