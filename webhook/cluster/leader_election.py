"""Leader election: one replica holds a Lease and writes to the cluster.

The rules are those of client-go (`tools/leaderelection/leaderelection.go`). Two of them prevent two
leaders at the same time:

- A leader that cannot renew the Lease stops acting before another replica may acquire it.
- A replica measures on its own clock how long a Lease has not changed. It ignores the times that
  are written into the Lease, because clocks of machines differ.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from webhook.cluster.client import ApiServer, Json
from webhook.cluster.errors import ApiError, Unreachable
from webhook.tasks import supervise

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ElectionTimings:
    """The times of an election in seconds; the first three have client-go's defaults.

    After a leader is killed, another replica acquires the Lease within `lease_duration_seconds` and
    one `retry_period_seconds`.
    """

    lease_duration_seconds: float = 15.0
    """How long other replicas wait for a renewal before they acquire the Lease."""
    renew_deadline_seconds: float = 10.0
    """How long a leader acts after its last renewal."""
    retry_period_seconds: float = 2.0
    """How often each replica tries to acquire or renew the Lease."""
    request_timeout_seconds: float = 5.0
    """Half of the renew deadline, which leaves time for a second attempt."""
    release_timeout_seconds: float = 2.0
    """For each of the two requests that release the Lease at shutdown."""


class LeaderElector:
    """A participant in the election for an existing Lease; the Lease is never created here."""

    def __init__(
        self,
        server: ApiServer,
        namespace: str,
        name: str,
        identity: str,
        timings: ElectionTimings = ElectionTimings(),
    ) -> None:
        self.problem = ""
        """Why the last request for the Lease failed; empty where it succeeded."""
        self._lease = f"Lease {namespace}/{name}"
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        self._server = server
        self._identity = identity
        self._timings = timings
        self._renewed_at: float | None = None
        self._last_object: Json = {}
        self._last_spec: Json = {}
        self._spec_changed_at = 0.0

    @property
    def is_leader(self) -> bool:
        """Whether this process may write now; False once the renew deadline has passed."""
        if self._renewed_at is None:
            return False
        return _now() - self._renewed_at < self._timings.renew_deadline_seconds

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take part in the election while the block runs, and release the Lease at its end.

        Tasks that write as the leader must end inside the block.
        """
        try:
            async with supervise(self._run):
                yield
        finally:
            await self._release()

    async def _run(self) -> None:
        while True:
            was_leader = self.is_leader
            try:
                await self._acquire_or_renew()
                self.problem = ""
            except (ApiError, Unreachable) as error:
                # A 409 is no problem: another replica has written the Lease first.
                is_conflict = isinstance(error, ApiError) and error.status == 409
                problem = "" if is_conflict else f"{self._lease}: {error}"
                if problem and not self.problem:
                    log.warning("leader election: %s", problem)
                self.problem = problem
                self._last_object = {}
            if was_leader != self.is_leader:
                state = "is held" if self.is_leader else "is no longer held"
                log.info("leader election: %s %s by this replica", self._lease, state)
            # Without jitter, all replicas would send their requests at the same moments.
            jitter = random.uniform(1.0, 1.2)  # noqa: S311
            await asyncio.sleep(self._timings.retry_period_seconds * jitter)

    async def _acquire_or_renew(self) -> None:
        timeout = self._timings.request_timeout_seconds
        if not (self.is_leader and self._last_object):
            self._last_object = await self._server.request("GET", self._path, timeout=timeout)
        spec: Json = self._last_object.get("spec") or {}
        now = _now()
        if spec != self._last_spec:
            self._last_spec, self._spec_changed_at = spec, now
        holder = spec.get("holderIdentity")
        is_holder = holder == self._identity
        duration = spec.get("leaseDurationSeconds") or self._timings.lease_duration_seconds
        if holder and not is_holder and now - self._spec_changed_at < duration:
            self._renewed_at = None
            return
        renew_time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        new_spec = {
            **spec,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._timings.lease_duration_seconds),
            "renewTime": renew_time,
        }
        if not is_holder:
            new_spec["acquireTime"] = renew_time
            new_spec["leaseTransitions"] = spec.get("leaseTransitions", 0) + 1
        body = {**self._last_object, "spec": new_spec}
        self._last_object = await self._server.request("PUT", self._path, body, timeout=timeout)
        self._last_spec = self._last_object["spec"]
        # `now` is from before the request. Other replicas start to count when they see the renewal,
        # so they always wait longer than this replica acts.
        self._spec_changed_at = self._renewed_at = now

    async def _release(self) -> None:
        if self._renewed_at is None:
            return
        self._renewed_at = None
        timeout = self._timings.release_timeout_seconds
        try:
            # The last object may be outdated: a cancelled request may still have been written.
            found = await self._server.request("GET", self._path, timeout=timeout)
            if found["spec"].get("holderIdentity") == self._identity:
                # One second, as in client-go: the API server rejects zero.
                spec = {**found["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                body = {**found, "spec": spec}
                await self._server.request("PUT", self._path, body, timeout=timeout)
        except (ApiError, Unreachable) as error:
            log.warning(
                "leader election: could not release %s; it will expire: %s", self._lease, error
            )


def _now() -> float:
    # This clock continues while the machine is suspended, as the clocks of other replicas do.
    return time.clock_gettime(time.CLOCK_BOOTTIME)
