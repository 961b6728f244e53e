"""A replica as a pod of a cluster: probed, admitted to the Service or not, and started again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.helm_release import Installation, Replica
from webhook.cluster.readiness import Readiness

_PERIOD_SECONDS, _TIMEOUT_SECONDS, _FAILURES = 2.0, 2.0, 2
"""Those of the chart's readinessProbe."""
_POLL_SECONDS = 0.1
_CRASH_LOOP_SECONDS = 10.0
"""How long the kubelet waits before the second restart. The first one is immediate."""


class Pod(threading.Thread):
    """A thread that does for one replica what a kubelet and the EndpointSlice controller do."""

    def __init__(self, release: Installation, launch: Callable[[], Replica]) -> None:
        super().__init__(daemon=True)
        self.replica = launch()
        self.logs: list[Path] = [self.replica.log]
        self.is_endpoint = False
        self.withdrawn_at = 0.0
        """When the replica was last taken out of the Service, by the monotonic clock."""
        self.restarts = 0
        self.notes: dict[str, str] = {}
        """The first note of /readyz?verbose for each check that fails or has one."""
        self.broken = ""
        """Why this thread has ended."""
        self._release = release
        self._launch = launch
        self._over = threading.Event()

    def problems(self, seconds: float = _TIMEOUT_SECONDS) -> list[str] | None:
        """Return the checks that fail, `[-]`, or have a note, `[!]`. None without an answer."""
        answer = self.replica.ask("/readyz?verbose", seconds=seconds)
        if answer is None:
            return None
        return [
            f"[{'!' if each.ready else '-'}]{each.name} {each.note}"
            for each in Readiness.model_validate_json(answer.content).checks
            if each.note or not each.ready
        ]

    def stop(self) -> None:
        """End the thread, and leave the replica running."""
        self._over.set()
        self.join()

    def run(self) -> None:
        try:
            failures, next_probe = 0, 0.0
            while not self._over.wait(_POLL_SECONDS):
                if self.replica.has_ended:
                    self._restart()
                elif time.monotonic() >= next_probe:
                    next_probe = time.monotonic() + _PERIOD_SECONDS
                    failures = 0 if self._is_ready() else failures + 1
                    self._follow(failures)
        except Exception as error:
            self.broken = repr(error)
            raise

    def _is_ready(self) -> bool:
        for line in self.problems() or ():
            self.notes.setdefault(line[3:].partition(" ")[0], line)
        answer = self.replica.ask("/readyz", seconds=_TIMEOUT_SECONDS)
        return answer is not None and answer.status_code == 200

    def _follow(self, failures: int) -> None:
        if failures == 0 and not self.is_endpoint:
            self._release.admit(self.replica)
            self.is_endpoint = True
        elif failures >= _FAILURES and self.is_endpoint:
            self._withdraw()

    def _withdraw(self) -> None:
        self._release.withdraw(self.replica)
        self.is_endpoint, self.withdrawn_at = False, time.monotonic()

    def _restart(self) -> None:
        if self.is_endpoint:
            self._withdraw()
        if self.restarts and self._over.wait(_CRASH_LOOP_SECONDS):
            return
        self._release.replicas.remove(self.replica)
        self.restarts += 1
        self.replica = self._launch()
        self.logs.append(self.replica.log)
