"""A response that is sent in pieces, so that back-pressure applies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import Response
from starlette.types import Receive, Scope, Send

_PIECE_BYTES = 64 * 1024


class PacedResponse(Response):
    """A JSON response. Each piece is sent when the one before it is."""

    def __init__(self, answer: bytes, release: Callable[[], None]) -> None:
        """`release` is called when the answer is sent, or when its client has disconnected."""
        super().__init__(answer, media_type="application/json")
        self._release = release

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the response."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        body, length = self.body, len(self.body)
        try:
            await send(start)
            for begin in range(0, length, _PIECE_BYTES):
                end = begin + _PIECE_BYTES
                piece = {"type": "http.response.body", "body": body[begin:end]}
                await send(piece | {"more_body": end < length})
                # send() does not wait if the client reads quickly. Without this pause, a long
                # answer would delay reviews.
                await asyncio.sleep(0)
        finally:
            self._release()
