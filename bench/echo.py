"""The echo: a server that reads the body and sends one fixed answer.

Its speed is the upper bound for webhooks on this stack: uvloop, and podsettle's TLS context.
`python -m bench.echo CERTS_DIR PORT ANSWER` starts it. It neither checks the request nor decodes
the review.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import uvloop

from webhook.process_memory import tune_memory_for_server
from webhook.server.run import listen
from webhook.tls.certificate_directory import CertificateDirectory

_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


class Echo(asyncio.Protocol):
    """A connection that sends one fixed answer to each request."""

    def __init__(self, answer: bytes) -> None:
        self._response = (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(answer), answer)
        )
        self._received = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Keep the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Send the answer when a request is complete. Clients do not pipeline."""
        self._received += data
        head, end, body = self._received.partition(_HEAD_END)
        length = _LENGTH.search(head)
        if end and len(body) >= int(length[1] if length else 0):
            self._received = b""
            self._transport.write(self._response)


async def _serve(certs: Path, port: int, answer: bytes) -> None:
    context = CertificateDirectory(certs).ssl_context()
    server = await asyncio.get_running_loop().create_server(
        lambda: Echo(answer), sock=listen("127.0.0.1", port, ""), ssl=context
    )
    async with server:
        await server.serve_forever()


def main(certs: Path, port: int, answer: Path) -> None:
    """Serve until SIGTERM or SIGINT."""
    tune_memory_for_server()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(certs, port, answer.read_bytes()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
