"""Answers of the plain ASGI applications."""

from __future__ import annotations

from starlette.types import Send

Header = tuple[bytes, bytes]

CLOSE: Header = (b"connection", b"close")
JSON: Header = (b"content-type", b"application/json")
_TEXT: Header = (b"content-type", b"text/plain; charset=utf-8")


async def respond(send: Send, status: int, body: bytes, *headers: Header) -> None:
    """Send an answer."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, status: int, message: str, *headers: Header) -> None:
    """Send why a request is not answered, as one line of text."""
    await respond(send, status, f"{message}\n".encode(), _TEXT, *headers)
