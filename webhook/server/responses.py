"""Answers of the plain ASGI applications."""

from __future__ import annotations

from starlette.types import Send

Header = tuple[bytes, bytes]

CLOSE: Header = (b"connection", b"close")
JSON: Header = (b"content-type", b"application/json")
_TEXT: Header = (b"content-type", b"text/plain; charset=utf-8")


_PIECE = 64 * 1024
"""Bytes of an answer that are sent at once: more waits until the client has read of it, instead of
lying in buffers, twice where it is encrypted."""


async def respond(send: Send, status: int, body: bytes, *headers: Header) -> None:
    """Send an answer. Of a long one all but the last pieces have gone to the system at the end."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    if len(body) > _PIECE:
        for at in range(0, len(body), _PIECE):
            piece = body[at : at + _PIECE]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        body = b""
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, status: int, message: str, *headers: Header) -> None:
    """Send why a request is not answered, as one line of text."""
    await respond(send, status, f"{message}\n".encode(), _TEXT, *headers)
