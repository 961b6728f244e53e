"""When to try again, and for how long."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from tenacity.stop import stop_before_delay
from tenacity.wait import wait_exponential

from webhook.cluster.errors import ApiError, Unreachable

log = logging.getLogger("webhook.client")

T = TypeVar("T")

STOOD = 15.0
"""Seconds after which a stream that breaks is no failed attempt: longer than a connection attempt
takes. Of a watch they count from its answer."""
_WORTH_ANOTHER_TRY = (408, 429)


class NotYetError(Exception):
    """What is asked for is not there yet, and may soon be."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter. The defaults are Woodpecker's, which are those of Go's
    `cenkalti/backoff` with one minute in all."""

    first: float = 0.5
    """Seconds before the second attempt."""
    factor: float = 1.5
    """By which each pause is longer than the one before."""
    jitter: float = 0.5
    """The share of a pause by which chance makes it longer or shorter, 0 to 1."""
    total: float = 60.0
    """Seconds, from the first attempt, after which none is begun; 0 for one attempt."""

    def __post_init__(self) -> None:
        if self.first < 0 or self.total < 0 or self.factor < 1 or not 0 <= self.jitter <= 1:
            raise ValueError("back-off: pauses may not be negative, nor shrink; jitter is 0 to 1")

    async def __call__(
        self,
        attempt: Callable[[], Awaitable[T]],
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> T:
        """What `attempt` returns once it fails no more in a way that may pass; else its last error.

        `pause` may return before its seconds are over, where there is reason to look at once.
        """

        async def _pause(seconds: float) -> None:
            await pause(seconds)

        async def _attempt() -> T:
            return await attempt()

        retrying = AsyncRetrying(
            sleep=_pause,
            wait=self._next_pause,
            stop=stop_before_delay(self.total),
            retry=retry_if_exception(may_pass),
            before_sleep=_say,
            reraise=True,
        )
        return await retrying(_attempt)

    def _next_pause(self, state: RetryCallState) -> float:
        pause = wait_exponential(multiplier=self.first, exp_base=self.factor)(state)
        return pause * random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311


def may_pass(error: BaseException) -> bool:
    """Whether another attempt makes sense.

    A kubelet without a serving certificate shows up as 500 of the API server, whose text ends in
    `remote error: tls: internal error`; a kubelet that cannot be reached as 500, 502 or 503.
    """
    if isinstance(error, ApiError):
        return error.status >= 500 or error.status in _WORTH_ANOTHER_TRY
    return isinstance(error, Unreachable | NotYetError)


def _say(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.info("%s; trying again in %.1f s", error, state.upcoming_sleep)
