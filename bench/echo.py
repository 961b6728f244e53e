"""The echo: a server that decides nothing. It sends one answer, with the uid of each review.

Its speed is the upper bound for webhooks on this stack: uvloop, and podsettle's TLS context.
`python -m bench.echo CERTS_DIR HOST PORT ANSWER` starts it. ANSWER is a file with an
AdmissionReview without its uid. The echo neither checks the request nor decodes the review.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import uvloop

from webhook.process_memory import tune_memory_for_server
from webhook.tls.certificate_directory import CertificateDirectory
from webhook.tls.file_source import FileSource

_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
# The API server writes the uid of the request before all other fields.
_UID = re.compile(rb'"uid":"([0-9a-f-]{36})"')
NO_UID = "0" * 36
"""What stands in the answer in the place of the uid."""


class Echo(asyncio.Protocol):
    """A connection that sends one answer to each request."""

    def __init__(self, answer: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._before, self._uid, self._after = (head % len(answer) + answer).partition(
            NO_UID.encode()
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
            uid = _UID.search(body)
            self._received = b""
            self._transport.write(self._before + (uid[1] if uid else self._uid) + self._after)


async def _serve(certs: Path, host: str, port: int, answer: bytes) -> None:
    context = FileSource(CertificateDirectory(certs)).context
    server = await asyncio.get_running_loop().create_server(
        lambda: Echo(answer), host, port, ssl=context
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    tune_memory_for_server()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answer = Path(sys.argv[4]).read_bytes()
        runner.run(_serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), answer))
