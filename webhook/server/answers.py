"""Answers of the plain ASGI applications."""

from __future__ import annotations

from starlette.types import Send

Header = tuple[bytes, bytes]

CLOSE: Header = (b"connection", b"close")
JSON: Header = (b"content-type", b"application/json")
_TEXT: Header = (b"content-type", b"text/plain; charset=utf-8")


_PIECE = 64 * 1024
"""Bytes of an answer that are sent at once. What the client has not read of it is buffered, twice
where it is encrypted: more of it waits until it has."""


async def respond(send: Send, status: int, body: bytes, *headers: Header) -> None:
    """Send an answer."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    last = max(len(body) - 1, 0) // _PIECE * _PIECE
    for at in range(0, last, _PIECE):
        piece = body[at : at + _PIECE]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": body[last:]})


async def refuse(send: Send, status: int, message: str, *headers: Header) -> None:
    """Send why a request is not answered, as one line of text."""
    await respond(send, status, f"{message}\n".encode(), _TEXT, *headers)
