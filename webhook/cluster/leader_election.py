"""Which of the replicas writes: the one that holds a Lease.

The rules are those of client-go's leader election (`tools/leaderelection/leaderelection.go`), so
that a Lease of podsettle reads like any other. Two of them matter most: a holder stops calling
itself one well before anybody else may take the Lease over, and whether a Lease has run out is
told by how long it has not changed, on the clock of the one who looks; the times that are written
into it are for people.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from webhook.cluster.client import ApiServer, Json
from webhook.cluster.errors import ApiError, Unreachable
from webhook.tasks import supervise

log = logging.getLogger(__name__)

_LEASE_DURATION_SECONDS = 15.0
_RENEW_DEADLINE_SECONDS = 10.0
_RETRY_PERIOD_SECONDS = 2.0
_REQUEST_TIMEOUT_SECONDS = 5.0


class LeaderElector:
    """A Lease that exists already, and whether this process holds it.

    Held at once where nobody does; within 17 seconds after its holder was killed.
    """

    def __init__(self, server: ApiServer, namespace: str, name: str, identity: str) -> None:
        self.problem = ""
        """Why the Lease could not be read or written; empty where it could."""
        self._lease = f"Lease {namespace}/{name}"
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        self._server = server
        self._identity = identity
        self._renewed_at: float | None = None
        self._last_object: Json = {}
        self._last_spec: Json = {}
        self._spec_changed_at = 0.0

    @property
    def is_leader(self) -> bool:
        """Whether this process may act; turns False by itself where renewing does not succeed."""
        return self._renewed_at is not None and _now() - self._renewed_at < _RENEW_DEADLINE_SECONDS

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take the Lease when it is free, keep it, and give it up at the end of the block.

        Whoever acts on `held` has to have ended before the block does.
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
                # A conflict is a race that another replica won: nothing is wrong.
                conflict = isinstance(error, ApiError) and error.status == 409
                problem = "" if conflict else f"{self._lease}: {error}"
                if problem and not self.problem:
                    log.warning("%s", problem)
                self.problem = problem
                self._last_object = {}
            if was_leader != self.is_leader:
                log.info("%s is %s", self._lease, "held" if self.is_leader else "held no longer")
            # Jitter, or all replicas try in the same moment for ever.
            await asyncio.sleep(_RETRY_PERIOD_SECONDS * random.uniform(1.0, 1.2))  # noqa: S311

    async def _acquire_or_renew(self) -> None:
        if not (self.is_leader and self._last_object):
            self._last_object = await self._server.request(
                "GET", self._path, timeout=_REQUEST_TIMEOUT_SECONDS
            )
        spec: Json = self._last_object.get("spec") or {}
        now = _now()
        if spec != self._last_spec:
            self._last_spec, self._spec_changed_at = spec, now
        holder = spec.get("holderIdentity")
        mine = holder == self._identity
        duration = spec.get("leaseDurationSeconds") or _LEASE_DURATION_SECONDS
        if holder and not mine and now - self._spec_changed_at < duration:
            self._renewed_at = None
            return
        written = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        taken = {
            **spec,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(_LEASE_DURATION_SECONDS),
            "renewTime": written,
        }
        if not mine:
            taken["acquireTime"] = written
            taken["leaseTransitions"] = spec.get("leaseTransitions", 0) + 1
        body = {**self._last_object, "spec": taken}
        self._last_object = await self._server.request(
            "PUT", self._path, body, timeout=_REQUEST_TIMEOUT_SECONDS
        )
        # From before it was sent: the others count from when they see it.
        self._last_spec, self._spec_changed_at, self._renewed_at = (
            self._last_object["spec"],
            now,
            now,
        )

    async def _release(self) -> None:
        if self._renewed_at is None:
            return
        self._renewed_at = None
        try:
            # Read anew: what was under way when this came may have been written.
            found = await self._server.request("GET", self._path, timeout=_RETRY_PERIOD_SECONDS)
            if found["spec"].get("holderIdentity") == self._identity:
                # One second, as client-go has it: zero is refused.
                spec = {**found["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                body = {**found, "spec": spec}
                await self._server.request("PUT", self._path, body, timeout=_RETRY_PERIOD_SECONDS)
        except (ApiError, Unreachable) as error:
            log.warning("%s is not given up, but runs out: %s", self._lease, error)


def _now() -> float:
    # The clock that goes on while the machine is suspended: others go on, too.
    return time.clock_gettime(time.CLOCK_BOOTTIME)
