"""The time limits of watches, and the reading of a watch within these limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """The limits of a watch in seconds.

    A watch can be silent for two reasons:

    - No object changes. The API server sends a bookmark every minute, but only if an object of the
      kind has changed since the API server started (`cacher.go` in k8s.io/apiserver). Otherwise it
      sends nothing until etcd reports its progress, by default after 10 minutes.
    - The connection broke without a FIN.

    A client cannot distinguish these cases. So a watch that is silent for too long ends without an
    error, and the next watch continues from the last version on a new connection. No event is lost.
    If the connection was broken, events arrive late by this limit at most. If the API server does
    not answer the new watch, that is an error.

    Two alternatives do not work. TCP keep-alive probes are answered by the kernel of a proxy, and
    by the kernel of an API server that hangs. Another request beside the watch shows only that the
    API server answers, and not that it would send events on this watch.
    """

    answer_seconds: float = 10.0
    """Maximum time to receive the response headers, which the API server sends immediately."""
    silent_seconds: float = 75.0
    """Maximum time without a line. It is longer than the 60 s between bookmarks. Together with
    `answer_seconds` it is below 90 s."""
    stable_seconds: float = 15.0
    """If a watch breaks after this time, that is not an error, because proxies close silent
    connections."""


async def lines_until_silent(content: aiohttp.StreamReader, seconds: float) -> AsyncIterator[bytes]:
    """Yield the lines of a watch until its end, or until `seconds` pass without a line."""
    while True:
        silence = asyncio.timeout(seconds)
        try:
            async with silence:
                line = await content.readline()
        except TimeoutError:
            if not silence.expired():
                raise
            return
        if not line:
            return
        yield line
