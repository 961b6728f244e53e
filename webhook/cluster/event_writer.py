"""Events on the controllers of pods, about what podsettle could not do for a policy.

A pod has no uid while it is reviewed, so an Event cannot refer to it. Its controller exists
already: `kubectl describe job/NAME` shows the Event.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.event_queue import EventKey, EventQueue, PodEvent, RateLimit
from webhook.cluster.webhook_configuration import FIELD_MANAGER
from webhook.core.admission.review import Request
from webhook.core.constants import DNS_LABEL_NAME, OBJECT_NAME
from webhook.core.pod import OwnerReference, Pod
from webhook.core.reasons import Outcome
from webhook.core.types import Json
from webhook.tasks import supervise

log = logging.getLogger(__name__)

_EVENTS_PER_SECOND = 1.0
_BURST = 25
"""The burst of client-go's filter against Events in masses (`tools/record/events_cache.go`)."""
_MAX_MESSAGE_CHARACTERS = 1_000
"""events.k8s.io accepts a note of 1,024 bytes."""
_MAX_NAMED_CONTAINERS = 3
# The API server has not checked the names in a pod yet, and a client that reaches the port can send
# any. An Event must not show a sentence that a client wrote.
_API_VERSION = re.compile(r"([-a-z0-9.]{1,253}/)?[a-z0-9]{1,63}", re.ASCII)
_KIND = re.compile(r"[A-Za-z0-9]{1,63}", re.ASCII)
_UID = re.compile(r"[-A-Za-z0-9]{1,63}", re.ASCII)
_MERGE = "application/merge-patch+json"


class EventWriter:
    """A writer that creates Events in the background, one at a time."""

    def __init__(self, server: ApiServer) -> None:
        self.problem = ""
        """Why the last Event could not be written. It is empty if it was written."""
        self._server = server
        self._queue = EventQueue()
        self._rate = RateLimit(_EVENTS_PER_SECOND, _BURST)
        self._added = asyncio.Event()
        self._counts = {"written": 0, "dropped": 0, "failed": 0}

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of Events by result: `written`, `dropped` because of a limit, or `failed`."""
        return self._counts

    def offer(self, request: Request[Any], unmet: Sequence[Outcome]) -> None:
        """Report the unmet wishes of policies for the pod of a request.

        A pod without a controller gets no Event. This neither waits nor raises an exception.
        """
        try:
            owner = _controller_of(request.pod)
            namespace = request.namespace or ""
            if owner is not None and OBJECT_NAME.fullmatch(namespace):
                self._add_all(namespace, owner, unmet, monotonic())
        except Exception:
            log.exception("internal error: an Event was not written")

    def _add_all(
        self, namespace: str, owner: OwnerReference, unmet: Sequence[Outcome], now: float
    ) -> None:
        """Add one Event for each remedy and reason, unless it was added a short time ago."""
        groups: dict[EventKey, list[Outcome]] = {}
        for outcome in unmet:
            key = EventKey(namespace, owner.uid, outcome.remedy, outcome.reason)
            if key in groups or not self._queue.repeats(key, now):
                groups.setdefault(key, []).append(outcome)
        for key, outcomes in groups.items():
            if not self._queue.add(PodEvent(key, owner, _message(outcomes)), now):
                self._counts["dropped"] += 1
            self._added.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write the Events while the block runs."""
        async with supervise(self._write_forever):
            yield

    async def _write_forever(self) -> None:
        """Write the Events in the order of the queue, within the rate limit."""
        while True:
            await self._added.wait()
            self._added.clear()
            while self._queue:
                await asyncio.sleep(self._rate.reserve(monotonic()))
                await self._write(self._queue.take())

    async def _write(self, event: PodEvent) -> None:
        """Create an Event, or count it if another replica or an earlier process created it."""
        problem = ""
        try:
            await self._create_or_count(event)
        except (ApiError, Unreachable) as error:
            # The next pod of this controller may have more success.
            self._queue.forget(event.key)
            problem = f"event on {event.owner.kind} in {event.key.namespace}: {error}"
        self._counts["failed" if problem else "written"] += 1
        if problem and problem != self.problem:
            log.warning("%s", problem)
        elif self.problem and not problem:
            log.info("events: ok again")
        self.problem = problem

    async def _create_or_count(self, event: PodEvent) -> None:
        """Create an Event. If it exists, increase its count. Raises ApiError and Unreachable."""
        path = f"/api/v1/namespaces/{event.key.namespace}/events"
        query = f"fieldManager={FIELD_MANAGER}"
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = _event_object(event, now)
        try:
            await self._server.request("POST", f"{path}?{query}", body)
        except ApiError as error:
            if error.status != 409:
                raise
        else:
            return
        # podsettle may not read Events. The answer to the first patch tells the count.
        path = f"{path}/{body['metadata']['name']}?{query}"
        latest = {"lastTimestamp": now, "message": event.message}
        found = await self._server.request("PATCH", path, latest, content_type=_MERGE)
        count = {"count": found.get("count", 1) + 1}
        await self._server.request("PATCH", path, count, content_type=_MERGE)


def _controller_of(pod: Pod) -> OwnerReference | None:
    """Return the pod's controller, or None if it has none that an Event can refer to."""
    for owner in (pod.metadata and pod.metadata.owner_references) or ():
        if owner.controller:
            valid = (
                _API_VERSION.fullmatch(owner.api_version)
                and _KIND.fullmatch(owner.kind)
                and OBJECT_NAME.fullmatch(owner.name)
                and _UID.fullmatch(owner.uid)
            )
            return owner if valid else None
    return None


def _message(outcomes: Sequence[Outcome]) -> str:
    """Return what podsettle did not do for a policy, and why, as one line.

    `outcomes` have the same remedy and reason. The sentence is the reason's meaning, because an
    outcome's own message contains texts of the pod.
    """
    first = outcomes[0]
    names = [each.container for each in outcomes if DNS_LABEL_NAME.fullmatch(each.container)]
    left = len(names) - _MAX_NAMED_CONTAINERS
    containers = ", ".join(names[:_MAX_NAMED_CONTAINERS]) + (f" and {left} more" * (left > 0))
    subject = f"{first.policy}/{first.remedy}"
    if containers:
        subject += f" left {containers} unchanged"
    return f"{subject}: {first.reason.meaning}"[:_MAX_MESSAGE_CHARACTERS]


def _event_object(event: PodEvent, now: str) -> Json:
    """Return an Event as the API server stores it."""
    owner, namespace = event.owner, event.key.namespace
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": _event_name(event), "namespace": namespace},
        "involvedObject": {
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "namespace": namespace,
            "uid": owner.uid,
        },
        "type": "Warning",
        "reason": str(event.key.reason),
        "message": event.message,
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "reportingInstance": socket.gethostname()[:128],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _event_name(event: PodEvent) -> str:
    """Return the same name for the same Event in every replica."""
    digest = hashlib.sha256("\0".join(event.key).encode()).hexdigest()[:16]
    return f"{event.owner.name[:200].rstrip('-.')}.{digest}"
