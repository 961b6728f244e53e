"""The open-loop generator counts latencies from the scheduled time of a review."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from bench.open_loop import OpenLoopGenerator

pytestmark = pytest.mark.lab

STALL = 0.3
RATE = 200


class Stalling:
    """A server that answers immediately, except for one stall. It closes every tenth connection."""

    def __init__(self) -> None:
        self.answered = 0
        self.stalls = True

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split()[0])
                assert await reader.readexactly(length) == b"{}"
                if self.answered == 20 and self.stalls:
                    self.stalls = False
                    await asyncio.sleep(STALL)
                self.answered += 1
                last = b"Connection: close\r\n" if self.answered % 10 == 0 else b""
                writer.write(b"HTTP/1.1 200 OK\r\n" + last + b"Content-Length: 2\r\n\r\nok")
                await writer.drain()
                if last:
                    break
        except asyncio.IncompleteReadError:
            pass
        writer.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.crt")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(context)
    running = await asyncio.start_server(Stalling().accept, "127.0.0.1", 0, ssl=context)
    port = running.sockets[0].getsockname()[1]
    yield f"https://localhost:{port}/mutate", str(tmp_path / "ca.crt")
    running.close()


async def test_stall_increases_the_latency_of_every_review_scheduled_during_it(
    server: tuple[str, str],
) -> None:
    generator = OpenLoopGenerator(*server)
    await generator.open()
    await generator.run([generator.encode_request(b"{}")], RATE, 0.6)
    assert generator.failures == []
    assert len(generator.latencies) == RATE * 0.6
    # On the only connection, reviews scheduled in the first half of the stall wait for its end.
    assert sum(took > STALL / 2 for took in generator.latencies) >= RATE * STALL / 2 * 0.8
    assert max(generator.latencies) >= STALL
