"""Debian's docker-registry on a directory: filled outside the node's namespaces, served inside."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import yaml

from tests.support.waiting import await_that

PROGRAM = "docker-registry"
ADDRESS = "127.0.0.1:5000"
"""Runtimes pull from a loopback address without TLS."""
SECOND_ADDRESS = "127.0.0.1:5001"
"""That of a registry with a controller's own images."""

_DIE_WITH_PARENT = Path(__file__).parents[1] / "die_with_parent.py"


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
    leash = [sys.executable, str(_DIE_WITH_PARENT), str(os.getpid())]
    with ExitStack() as stack:
        directory = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, directory)
        fcntl.flock(directory, fcntl.LOCK_SH)
        output = stack.enter_context(log.open("w"))
        process = subprocess.Popen(
            [*leash, program, "serve", str(configuration)], stdout=output, stderr=output
        )
        stack.callback(_end, process)
        client = stack.enter_context(httpx.Client(base_url=f"http://{address}", trust_env=False))

        def answers() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                return client.get("/v2/").status_code == 200
            except httpx.TransportError:
                return False

        await_that(answers, "the registry answers")
        yield address


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
