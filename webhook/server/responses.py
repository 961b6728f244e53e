"""Responses of plain ASGI applications."""

from __future__ import annotations

from starlette.types import Send

Header = tuple[bytes, bytes]

CLOSE: Header = (b"connection", b"close")
JSON: Header = (b"content-type", b"application/json")
_TEXT: Header = (b"content-type", b"text/plain; charset=utf-8")

_CHUNK_BYTES = 64 * 1024
"""Longer bodies are sent in chunks, so that back-pressure applies. A body in one piece would lie in
the write buffers, once as plain text and once encrypted."""


async def respond(send: Send, status: int, body: bytes, *headers: Header) -> None:
    """Send a response. Returns when all but the last chunks are in the system's send buffer."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    if len(body) > _CHUNK_BYTES:
        for start in range(0, len(body), _CHUNK_BYTES):
            chunk = body[start : start + _CHUNK_BYTES]
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        body = b""
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, status: int, message: str, *headers: Header) -> None:
    """Send an HTTP error with a message of one line."""
    await respond(send, status, f"{message}\n".encode(), _TEXT, *headers)
