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

_DURATION = 15.0
_RENEW_DEADLINE = 10.0
_RETRY = 2.0
_TIMEOUT = 5.0


class Lease:
    """A Lease that exists already, and whether this process holds it.

    Held at once where nobody does; within 17 seconds after its holder was killed.
    """

    def __init__(self, server: ApiServer, namespace: str, name: str, identity: str) -> None:
        self.problem = ""
        """Why the Lease could not be read or written; empty where it could."""
        self._title = f"Lease {namespace}/{name}"
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        self._server = server
        self._identity = identity
        self._renewed: float | None = None
        self._object: Json = {}
        self._spec: Json = {}
        self._spec_seen = 0.0

    @property
    def held(self) -> bool:
        """Whether this process may act; turns False by itself where renewing does not succeed."""
        return self._renewed is not None and _now() - self._renewed < _RENEW_DEADLINE

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
            had = self.held
            try:
                await self._take_or_renew()
                self.problem = ""
            except (ApiError, Unreachable) as error:
                # A conflict is a race that another replica won: nothing is wrong.
                conflict = isinstance(error, ApiError) and error.status == 409
                problem = "" if conflict else f"{self._title}: {error}"
                if problem and not self.problem:
                    log.warning("%s", problem)
                self.problem = problem
                self._object = {}
            if had != self.held:
                log.info("%s is %s", self._title, "held" if self.held else "held no longer")
            # Jitter, or all replicas try in the same moment for ever.
            await asyncio.sleep(_RETRY * random.uniform(1.0, 1.2))  # noqa: S311

    async def _take_or_renew(self) -> None:
        if not (self.held and self._object):
            self._object = await self._server.request("GET", self._path, timeout=_TIMEOUT)
        spec: Json = self._object.get("spec") or {}
        began = _now()
        if spec != self._spec:
            self._spec, self._spec_seen = spec, began
        holder = spec.get("holderIdentity")
        mine = holder == self._identity
        duration = spec.get("leaseDurationSeconds") or _DURATION
        if holder and not mine and began - self._spec_seen < duration:
            self._renewed = None
            return
        written = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        taken = {
            **spec,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(_DURATION),
            "renewTime": written,
        }
        if not mine:
            taken["acquireTime"] = written
            taken["leaseTransitions"] = spec.get("leaseTransitions", 0) + 1
        body = {**self._object, "spec": taken}
        self._object = await self._server.request("PUT", self._path, body, timeout=_TIMEOUT)
        # From before it was sent: the others count from when they see it.
        self._spec, self._spec_seen, self._renewed = self._object["spec"], began, began

    async def _release(self) -> None:
        if self._renewed is None:
            return
        self._renewed = None
        try:
            # Read anew: what was under way when this came may have been written.
            found = await self._server.request("GET", self._path, timeout=_RETRY)
            if found["spec"].get("holderIdentity") == self._identity:
                # One second, as client-go has it: zero is refused.
                spec = {**found["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                body = {**found, "spec": spec}
                await self._server.request("PUT", self._path, body, timeout=_RETRY)
        except (ApiError, Unreachable) as error:
            log.warning("%s is not given up, but runs out: %s", self._title, error)


def _now() -> float:
    # The clock that goes on while the machine is suspended: others go on, too.
    return time.clock_gettime(time.CLOCK_BOOTTIME)
