"""The graceful shutdown between SIGTERM and the exit of the process.

After a pod begins to terminate, the API server continues to use its open connections to the pod,
and the Service routes new connections to the pod for a moment. Therefore the server does this:

- The readiness check fails immediately.
- Reviews are still answered. Each answer contains `Connection: close`.
- The process exits when no more reviews arrive. Probes do not delay the exit.
- At the exit, clients close their idle connections, as `connections/protocol.py` explains.

The design follows knative's `network/handlers/drain.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from webhook.cluster.source import Check


class Drain:
    """The state of the graceful shutdown, which determines when the process exits.

    The process exits `idle_seconds` after the last review, but no later than `timeout_seconds`
    after `start`.
    """

    def __init__(
        self, idle_seconds: float, timeout_seconds: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self.idle_seconds = idle_seconds
        self.timeout_seconds = timeout_seconds
        self.last_review_at = 0.0
        """When the last review was received, by `clock`. The handler of /mutate sets it."""
        self._clock = clock
        self._started_at: float | None = None

    @property
    def started(self) -> bool:
        """Whether the shutdown has begun."""
        return self._started_at is not None

    def start(self) -> None:
        """Begin the shutdown. Further calls change nothing."""
        if self._started_at is None:
            self._started_at = self._clock()

    def finished(self) -> bool:
        """Return whether to exit now."""
        if self._started_at is None:
            return False
        now, idle_since = self._clock(), max(self._started_at, self.last_review_at)
        return (
            now - idle_since >= self.idle_seconds or now - self._started_at >= self.timeout_seconds
        )

    def check(self) -> Check:
        """Return the readiness check. The API server's shutdown check has the same name."""
        return Check("shutdown", not self.started, "this process is shutting down" * self.started)
