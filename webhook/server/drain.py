"""The lame duck: what the server does between the signal to leave and its leaving.

The API server goes on using connections to a pod that is about to end, and a Service goes on
naming it for a moment. So readiness fails at once, reviews are answered on, each answer asks for
its connection to be closed, and the server leaves when no review comes any more. After knative's
`network/handlers/drain.go`: probes are no traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from webhook.cluster.source import Check


class Drain:
    """Decides when the server exits."""

    def __init__(
        self, idle_seconds: float, timeout_seconds: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self.idle_seconds = idle_seconds
        self.timeout_seconds = timeout_seconds
        self.reviews = 0
        """Of how many requests to /mutate the server knows; /mutate counts them."""
        self._clock = clock
        self._started_at: float | None = None
        self._last_review = 0.0
        self._reviews_seen = 0

    @property
    def started(self) -> bool:
        """Whether the server is to leave."""
        return self._started_at is not None

    def start(self) -> None:
        """Fail readiness from now on, and leave once it is quiet."""
        if self._started_at is None:
            self._started_at = self._last_review = self._clock()
            self._reviews_seen = self.reviews

    def finished(self) -> bool:
        """Whether to leave now. To be asked often: it is here that reviews are noticed."""
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
        """The line in /readyz, of the name that the API server's own has."""
        return Check("shutdown", not self.started, "this process is about to end" * self.started)
