"""Retries with exponential back-off, and which streams that break need one."""

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

from webhook.cluster.errors import ApiError, TooLargeError, Unreachable
from webhook.cluster.watch import WatchLimits

log = logging.getLogger("webhook.client")

T = TypeVar("T")

# Request Timeout and Too Many Requests: the API server asks for a retry.
_RETRYABLE_CLIENT_STATUSES = (408, 429)


class NotYetError(Exception):
    """The requested state or log does not exist yet. A retry may find it."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The parameters of an exponential back-off with jitter. A call runs a function with retries.

    The defaults are the defaults of Woodpecker, which uses `cenkalti/backoff` of Go with one minute
    in total. The longest pause is that of `cenkalti/backoff`.
    """

    first: float = 0.5
    """The pause before the second attempt, in seconds."""
    factor: float = 1.5
    """The ratio between a pause and the pause before it."""
    jitter: float = 0.5
    """The largest random change of a pause, as a share of the pause from 0 to 1."""
    total: float = 60.0
    """The seconds after the first attempt during which retries may start. 0 means no retry."""
    max_pause: float = 60.0
    """The pause in seconds from which pauses no longer grow. The jitter changes this pause too."""

    def __post_init__(self) -> None:
        seconds = self.first, self.total, self.max_pause
        if min(seconds) < 0 or self.factor < 1 or not 0 <= self.jitter <= 1:
            raise ValueError("back-off: pauses must not be negative or shrink; jitter is 0 to 1")

    async def __call__(
        self,
        attempt: Callable[[], Awaitable[T]],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> T:
        """Return the result of `attempt`. Retry it while its error is retryable.

        `pause` gets the seconds to wait. It may return early, and the retry then starts early.
        Raises the last error when the back-off is spent. Raises an error that is not retryable
        without a retry.
        """

        async def _attempt() -> T:  # tenacity awaits only what is declared to be a coroutine.
            return await attempt()

        retrying = AsyncRetrying(
            sleep=pause,
            wait=self._next_pause,
            stop=stop_before_delay(self.total),
            retry=retry_if_exception(is_retryable),
            before_sleep=_log_retry,
            reraise=True,
        )
        return await retrying(_attempt)

    def _next_pause(self, state: RetryCallState) -> float:
        grow = wait_exponential(multiplier=self.first, max=self.max_pause, exp_base=self.factor)
        pause = grow(state)
        return pause * random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The timeouts of watches and log streams. The defaults suit every cluster."""

    stable_after_seconds: float = 15.0
    """A stream that breaks after this time is not a failed attempt. The time is longer than the
    timeout of a connection. For a watch, it begins with the server's answer."""
    log_silence_seconds: float = 120.0
    """If a log stream sends no byte for this time, it is opened again. Its connection may be
    broken."""
    watch_limits: WatchLimits = WatchLimits()  # noqa: RUF009 (it is frozen)


def is_retryable(error: BaseException) -> bool:
    """Return whether another attempt may succeed.

    The API server answers 500 if a kubelet has no serving certificate yet. The message then ends
    in `remote error: tls: internal error`. It answers 500, 502 or 503 if it cannot reach a kubelet.
    """
    if isinstance(error, ApiError):
        return error.status >= 500 or error.status in _RETRYABLE_CLIENT_STATUSES
    return isinstance(error, Unreachable | NotYetError) and not isinstance(error, TooLargeError)


def _log_retry(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.info("%s; trying again in %.1f s", error, state.upcoming_sleep)
