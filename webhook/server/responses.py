"""Functions that send responses from ASGI applications that do not use FastAPI."""

from __future__ import annotations

from starlette.types import Send

Header = tuple[bytes, bytes]

CLOSE: Header = (b"connection", b"close")
JSON: Header = (b"content-type", b"application/json")
_TEXT: Header = (b"content-type", b"text/plain; charset=utf-8")

_CHUNK_BYTES = 64 * 1024
"""Longer bodies are sent in chunks, so that back-pressure applies. A longer body in one chunk would
occupy the write buffers twice, as plain text and as encrypted data."""


async def respond(send: Send, status: int, body: bytes, *headers: Header) -> None:
    """Send a response.

    When this returns, the last chunks can still be in the write buffers of the process.
    """
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    if len(body) > _CHUNK_BYTES:
        for start in range(0, len(body), _CHUNK_BYTES):
            chunk = body[start : start + _CHUNK_BYTES]
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        body = b""
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, status: int, message: str, *headers: Header) -> None:
    """Send an HTTP error with a one-line message as plain text."""
    await respond(send, status, f"{message}\n".encode(), _TEXT, *headers)
