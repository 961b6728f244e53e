"""podsettle on manifests, with a monitor of its event loop's stalls.

`python -m bench.stall_monitor CERTS PORT MANIFESTS FILE WEB_PORT` serves like `podsettle serve`. A
callback runs on the event loop each millisecond. Ten times a second, the monitor appends a line to
FILE with three numbers, in seconds:

- the time (CLOCK_MONOTONIC),
- the longest delay of the callback since the last line, which includes delays by other processes,
- the most CPU time that the loop's thread used between two callbacks since the last line.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.admission.decider import OperatorSettings
from webhook.server.app import create_app
from webhook.server.components import build_components
from webhook.server.drain import Drain
from webhook.server.run import listen, serve
from webhook.tls.certificate_directory import CertificateDirectory
from webhook.tls.file_source import FileSource

# The resolution with which stalls are measured. Shorter intervals would load the event loop.
_CALLBACK_INTERVAL_SECONDS = 0.001
_LINE_INTERVAL_SECONDS = 0.1


class Stall(NamedTuple):
    """The longest delay and the most CPU time between two callbacks, in seconds."""

    delay: float
    cpu: float


async def _monitor(out: Path) -> None:
    """Write the delays and the CPU time of the event loop to a file, until cancelled."""
    with out.open("w", buffering=1) as lines:
        delay, cpu, written = 0.0, 0.0, time.monotonic()
        while True:
            due, used = time.monotonic() + _CALLBACK_INTERVAL_SECONDS, time.thread_time()
            await asyncio.sleep(_CALLBACK_INTERVAL_SECONDS)
            now = time.monotonic()
            delay = max(delay, now - due)
            cpu = max(cpu, time.thread_time() - used)
            if now - written > _LINE_INTERVAL_SECONDS:
                lines.write(f"{now} {delay} {cpu}\n")
                delay, cpu, written = 0.0, 0.0, now


def longest_stall(out: Path, since: float, until: float) -> Stall:
    """Return the longest stall between two times of CLOCK_MONOTONIC, from the monitor's file."""
    lines = [tuple(map(float, line.split())) for line in out.read_text().splitlines()]
    within = [line for line in lines if since <= line[0] <= until]
    return Stall(max(line[1] for line in within), max(line[2] for line in within))


def main(certs: Path, port: int, manifests: Path, out: Path, web_port: int) -> None:
    """Serve and monitor the event loop until SIGTERM or SIGINT."""
    source = ManifestsSource(manifests)
    source.refresh()
    certificates = FileSource(CertificateDirectory(certs))

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with source.running(), certificates.running():
            monitor = asyncio.create_task(_monitor(out))
            try:
                yield
            finally:
                monitor.cancel()

    components = build_components(
        source,
        OperatorSettings(linger_image="registry.example/linger:1"),
        certificate_expires=lambda: certificates.expires,
        running=running,
        drain=Drain(0, 1),
    )
    listeners = (listen("127.0.0.1", each, "") for each in (port, web_port))
    serve(create_app(components), components, certificates.context, *listeners)


if __name__ == "__main__":
    files = Path(sys.argv[1]), Path(sys.argv[3]), Path(sys.argv[4])
    main(files[0], int(sys.argv[2]), files[1], files[2], int(sys.argv[5]))
