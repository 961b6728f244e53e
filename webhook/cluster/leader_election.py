"""The leader election. One replica holds a Lease, and only this replica writes to the cluster.

The rules are those of client-go (`tools/leaderelection/leaderelection.go`). Two of them prevent two
leaders at the same time:

- A leader that cannot renew the Lease stops writing before another replica may acquire the Lease.
- A replica measures with its own clock how long a Lease has not changed. It ignores the times in
  the Lease, because the clocks of machines differ.
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
from functools import partial

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.core.types import Json
from webhook.tasks import supervise

log = logging.getLogger(__name__)

FORMER_LEADER = "former-leader"
"""The holder of a Lease that was created in place of another one. It expires as any other does."""


@dataclass(frozen=True, slots=True)
class ElectionTimings:
    """The durations of an election in seconds. The first three have client-go's defaults.

    After a leader is killed, another replica acquires the Lease within `lease_duration_seconds` and
    one `retry_period_seconds`.
    """

    lease_duration_seconds: float = 15.0
    """The time without a renewal after which another replica may acquire the Lease."""
    renew_deadline_seconds: float = 10.0
    """The time after its last renewal during which a leader may write."""
    retry_period_seconds: float = 2.0
    """The interval at which each replica tries to acquire or renew the Lease."""
    request_timeout_seconds: float = 5.0
    """The timeout of one request. It is half of the renew deadline, to allow a second attempt."""
    release_timeout_seconds: float = 2.0
    """The timeout of each of the two requests that release the Lease at shutdown."""


class LeaderElector:
    """A participant in an election. It creates the Lease if there is none.

    A deployer may leave the Lease out or remove it: Argo CD never applies one (argo-cd
    `util/settings/resources_filter.go`). The Deployment with the name of the Lease owns it, so that
    it is deleted with podsettle.
    """

    def __init__(
        self,
        server: ApiServer,
        namespace: str,
        name: str,
        identity: str,
        timings: ElectionTimings = ElectionTimings(),
    ) -> None:
        self.problem = ""
        """Why the last request for the Lease failed, or who keeps it. Empty if a replica leads."""
        self.joined = False
        """Whether a request for the Lease has succeeded. Else no replica may be able to lead."""
        self._owner_path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        self._lease = f"Lease {namespace}/{name}"
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        self._request = partial(server.request, timeout=timings.request_timeout_seconds)
        self._identity = identity
        self._timings = timings
        self._renewed_at: float | None = None
        self._last_object: Json = {}
        self._last_spec: Json = {}
        self._spec_changed_at = 0.0

    @property
    def is_leader(self) -> bool:
        """Whether this process may write now. It is False after the renew deadline has passed."""
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
        """Try to acquire or renew the Lease at each interval, until cancelled."""
        while True:
            was_leader = self.is_leader
            try:
                problem, self.joined = await self._acquire_or_renew(), True
            except (ApiError, Unreachable) as error:
                # A 409 only means that another replica has written the Lease first.
                is_conflict = isinstance(error, ApiError) and error.status == 409
                problem = "" if is_conflict else str(error)
                self._last_object = {}
            self.problem = f"{self._lease}: {problem}" if problem else ""
            if was_leader != self.is_leader:
                state = "is held" if self.is_leader else "is no longer held"
                log.info("leader election: %s %s by this replica", self._lease, state)
            # Without jitter, all replicas would send their requests at the same moments.
            jitter = random.uniform(1.0, 1.2)  # noqa: S311
            await asyncio.sleep(self._timings.retry_period_seconds * jitter)

    async def _acquire_or_renew(self) -> str:
        """Write the Lease if this replica holds it, or if it is free or expired.

        Return who keeps it without a renewal, or an empty text. Raises ApiError and Unreachable.
        """
        if not (self.is_leader and self._last_object):
            self._last_object = await self._read_or_create()
        spec: Json = self._last_object.get("spec") or {}
        now = _now()
        if spec != self._last_spec:
            self._last_spec, self._spec_changed_at = spec, now
        holder = spec.get("holderIdentity")
        is_holder = holder == self._identity
        duration = spec.get("leaseDurationSeconds") or self._timings.lease_duration_seconds
        unchanged = now - self._spec_changed_at
        if holder and not is_holder and unchanged < duration:
            self._renewed_at = None
            # A leader renews much earlier. This one is gone, or a person has written the Lease.
            if unchanged > self._timings.lease_duration_seconds:
                return f"{holder} holds it for {duration:.0f} s, and does not renew it"
            return ""
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
        self._last_object = await self._request("PUT", self._path, body)
        self._last_spec = self._last_object["spec"]
        # `now` was read before the request. Other replicas measure from when they read the renewed
        # Lease, which is later. Therefore they always wait longer than this replica writes.
        self._spec_changed_at = self._renewed_at = now
        return ""

    async def _read_or_create(self) -> Json:
        """Return the Lease, and create it first if it is missing. Raises ApiError, Unreachable."""
        try:
            return await self._request("GET", self._path)
        except ApiError as error:
            if error.status != 404:
                raise
        owner: Json = {}
        try:
            owner = (await self._request("GET", self._owner_path))["metadata"]
        except ApiError as error:  # podsettle may not run as this Deployment.
            if error.status not in (403, 404):
                raise
        spec: Json = {}
        # A leader writes until its deadline, also if its Lease is gone. No other one may lead then.
        if self.is_leader:
            spec = {"holderIdentity": self._identity}
        elif self._last_spec.get("holderIdentity") or owner.get("generation", 1) > 1:
            seconds = int(self._timings.lease_duration_seconds)
            spec = {"holderIdentity": FORMER_LEADER, "leaseDurationSeconds": seconds}
        kind = {"apiVersion": "apps/v1", "kind": "Deployment"}
        owners = [{**kind, "name": owner["name"], "uid": owner["uid"]}] if owner else []
        directory, _, name = self._path.rpartition("/")
        body = {"metadata": {"name": name, "ownerReferences": owners}, "spec": spec}
        created = await self._request("POST", directory, body)
        log.info("leader election: %s did not exist, and was created", self._lease)
        return created

    async def _release(self) -> None:
        """Release the Lease if this replica holds it, so that another can acquire it."""
        if self._renewed_at is None:
            return
        self._renewed_at = None
        timeout = self._timings.release_timeout_seconds
        try:
            # Read the Lease again, because the API server may have executed a cancelled request.
            lease = await self._request("GET", self._path, timeout=timeout)
            if lease["spec"].get("holderIdentity") == self._identity:
                # The duration is one second, as in client-go, because the API server rejects zero.
                spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                body = {**lease, "spec": spec}
                await self._request("PUT", self._path, body, timeout=timeout)
        except (ApiError, Unreachable) as error:
            log.warning(
                "leader election: could not release %s; it will expire: %s", self._lease, error
            )


def _now() -> float:
    # Unlike time.monotonic, this clock continues while the machine is suspended. Meanwhile the
    # clocks of the other replicas continue, and one of them may acquire the Lease.
    return time.clock_gettime(time.CLOCK_BOOTTIME)
