"""Graceful shutdown: what happens between SIGTERM and exit.

The API server continues to use its connections to a terminating pod, and the Service refers to the
pod for a moment. So readiness fails at once, reviews are still answered, each answer asks the
client to close its connection, and the process exits when no more reviews arrive. Probes do not
count. After knative's `network/handlers/drain.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from webhook.cluster.source import Check


class Drain:
    """The decision when to exit.

    That is `idle_seconds` after the last review, and at the latest `timeout_seconds` after `start`.
    """

    def __init__(
        self, idle_seconds: float, timeout_seconds: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self.idle_seconds = idle_seconds
        self.timeout_seconds = timeout_seconds
        self.reviews = 0
        """Number of requests to /mutate so far. The handler of /mutate counts them."""
        self._clock = clock
        self._started_at: float | None = None
        self._last_review = 0.0
        self._reviews_seen = 0

    @property
    def started(self) -> bool:
        """Whether the shutdown has begun."""
        return self._started_at is not None

    def start(self) -> None:
        """Begin the shutdown. Further calls change nothing."""
        if self._started_at is None:
            self._started_at = self._last_review = self._clock()
            self._reviews_seen = self.reviews

    def finished(self) -> bool:
        """Return whether to exit now. Poll this: it also records when reviews arrived."""
        if self._started_at is None:
            return False
        now = self._clock()
        if self.reviews != self._reviews_seen:
            self._reviews_seen = self.reviews
            self._last_review = now
        return (
            now - self._last_review >= self.idle_seconds
            or now - self._started_at >= self.timeout_seconds
        )

    def check(self) -> Check:
        """Return the readiness check. The API server's own has the same name."""
        return Check("shutdown", not self.started, "this process is shutting down" * self.started)
