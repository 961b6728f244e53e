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
    """When to leave: `quiet` seconds after the last review, at the latest `limit` after begun."""

    def __init__(self, quiet: float, limit: float, clock: Callable[[], float] = monotonic) -> None:
        self.quiet = quiet
        self.limit = limit
        self.reviews = 0
        """Of how many requests to /mutate the server knows; /mutate counts them."""
        self._clock = clock
        self._began: float | None = None
        self._last_review = 0.0
        self._reviews_seen = 0

    @property
    def begun(self) -> bool:
        """Whether the server is to leave."""
        return self._began is not None

    def begin(self) -> None:
        """Fail readiness from now on, and leave once it is quiet."""
        if self._began is None:
            self._began = self._last_review = self._clock()
            self._reviews_seen = self.reviews

    def over(self) -> bool:
        """Whether to leave now. To be asked often: it is here that reviews are noticed."""
        if self._began is None:
            return False
        now = self._clock()
        if self.reviews != self._reviews_seen:
            self._reviews_seen = self.reviews
            self._last_review = now
        return now - self._last_review >= self.quiet or now - self._began >= self.limit

    def check(self) -> Check:
        """The line in /readyz, of the name that the API server's own has."""
        return Check("shutdown", not self.begun, "this process is about to end" * self.begun)
