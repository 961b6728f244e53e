"""A response that is sent in pieces, so that back-pressure applies."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from fastapi import Response
from starlette.types import Receive, Scope, Send


class PacedResponse(Response):
    """A JSON response in pieces. The server holds only the pieces that are not yet sent."""

    def __init__(self, pieces: Iterable[bytes], release: Callable[[], None]) -> None:
        """`release` is called when the response is sent, or when its client has disconnected."""
        self._pieces = deque(pieces)
        self._release = release
        length = str(sum(map(len, self._pieces)))
        super().__init__(headers={"content-length": length}, media_type="application/json")

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the response."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            await send(start)
            while self._pieces:
                piece = {"type": "http.response.body", "body": self._pieces.popleft()}
                await send(piece | {"more_body": bool(self._pieces)})
                # send() does not wait if the client reads quickly. Without this pause, a long
                # answer would delay reviews.
                await asyncio.sleep(0)
        finally:
            self._release()
