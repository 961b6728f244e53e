"""A long gap between the end of an init container and the start of the next container.

containerd reports the end only after the umount of the root filesystem, and the kubelet begins with
the next container only then. So its first event about that container shows whether the umount took
the time. If the kubelet began early, the gap has another cause: the pull of the image, or a
ConfigMap that was missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from webhook.core.pod import Container
from webhook.inspect.findings import Certainty, Evidence, Finding, format_time
from webhook.inspect.objects import ContainerStatus, Event, LivePod
from webhook.inspect.scan.symptoms.base import (
    ScanFacts,
    Symptom,
    defect_named,
    event_evidence,
    is_plausible,
    make_finding,
    node_evidence,
)

ID = "slow-umount"
_DEFECT = defect_named("containerd-slow-umount")
_MIN_GAP_SECONDS = 60
"""Shorter gaps have many causes. The report has a gap of 15 min."""
_PULLED = "Pulled"
"""The reason of the event about the end of a pull. A cluster has many events about containers, so a
scan reads those of single pods only."""
_NO_PULL = "already present on machine"

_PULL_TIME = re.compile(r" in (\S+?)(?: \((\S+) including waiting\))?\.?(?: |$)")
_MAX_PULL_SECONDS = 7 * 86_400
"""No pull takes longer. A tenant can write an event with any duration."""
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|µs|ns|m|s)")
_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class _Gap(NamedTuple):
    """The time between the end of an init container and the start of the next container."""

    ended: str
    """The name of the init container."""
    finished_at: datetime
    next_path: str
    """The next container as events name it, such as `spec.containers{main}`."""
    next_name: str
    started_at: datetime

    @property
    def seconds(self) -> int:
        """The length of the gap."""
        return round((self.started_at - self.finished_at).total_seconds())


def judge(pod: LivePod, facts: ScanFacts) -> Iterator[Finding]:
    """Yield a finding for each long gap, unless the kubelet began with the next container early."""
    gaps = _long_gaps(pod)
    node = node_evidence(pod, facts, _DEFECT) if gaps else None
    if node is None:
        return
    for gap in gaps:
        events = _events(pod, facts, gap)
        pulled = next((event for event in events if event.reason == _PULLED), None)
        pull_seconds = _pull_seconds(pulled.message) if pulled else None
        begins = [time for event in events if (time := event.first_time) is not None]
        if pulled is not None and pulled.first_time is not None:
            begins.append(pulled.first_time - timedelta(seconds=pull_seconds or 0))
        if begins and (min(begins) - gap.finished_at).total_seconds() * 2 < gap.seconds:
            continue
        evidence = [
            Evidence(
                pod.title,
                f"state.terminated.finishedAt of {gap.ended}",
                f"{gap.seconds} s before the start of {gap.next_name}",
                gap.finished_at,
            ),
            Evidence(
                pod.title,
                f"startedAt of {gap.next_name}",
                format_time(gap.started_at),
                gap.started_at,
            ),
        ]
        if pulled is not None:
            evidence.append(event_evidence(pulled))
        sentence = (
            f"{gap.next_name} started {gap.seconds} s after init container {gap.ended} had ended, "
            f"on node {pod.spec.node_name}"
        )
        certainty = Certainty.LIKELY
        if pull_seconds is None:
            sentence += "; when the kubelet began with it is unknown"
            certainty = Certainty.POSSIBLE
        yield make_finding(
            ID, pod, certainty, sentence, evidence, gap.finished_at, defect=_DEFECT, node=node
        )


def needs_events(pod: LivePod, facts: ScanFacts) -> bool:
    """Return whether the events about containers could change what `judge` says of a pod."""
    return bool(_long_gaps(pod)) and node_evidence(pod, facts, _DEFECT) is not None


def _long_gaps(pod: LivePod) -> list[_Gap]:
    """Return the long gaps of a pod, in the order of its containers."""
    init_statuses = _by_name(pod.status.init_container_statuses)
    if not init_statuses:
        return []
    # A native sidecar starts before the next init container, and does not end.
    inits = pod.spec.init_containers or []
    gaps: list[_Gap] = []
    for index, init in enumerate(inits):
        status = init_statuses.get(init.name)
        state = status.state if status is not None else None
        terminated = state.terminated if state is not None else None
        if terminated is None or terminated.finished_at is None or init.restart_policy == "Always":
            continue
        if not is_plausible(pod, terminated.finished_at):
            continue
        following = inits[index + 1 : index + 2]
        if following:
            started = _first_start(following[0], init_statuses)
            path = f"spec.initContainers{{{following[0].name}}}"
        else:
            following, started = _first_regular(pod)
            path = f"spec.containers{{{following[0].name}}}" if following else ""
        if started is None:
            continue
        gap = _Gap(
            init.name,
            terminated.finished_at,
            path,
            following[0].name,
            started,
        )
        if gap.seconds >= _MIN_GAP_SECONDS:
            gaps.append(gap)
    return gaps


def _first_start(container: Container, statuses: dict[str, ContainerStatus]) -> datetime | None:
    """Return when a container started first, or None if it restarted or has not started."""
    status = statuses.get(container.name)
    if status is None or status.restart_count or status.state is None:
        return None
    return status.state.started_at


def _first_regular(pod: LivePod) -> tuple[list[Container], datetime | None]:
    """Return the regular container that started first, and when.

    If one has restarted, its first start is unknown, and so is the order.
    """
    statuses = _by_name(pod.status.container_statuses)
    if any(status.restart_count for status in statuses.values()):
        return [], None
    starts = [
        (started, container)
        for container in pod.spec.containers or ()
        if (started := _first_start(container, statuses)) is not None
    ]
    if not starts:
        return [], None
    started, container = min(starts, key=lambda start: start[0])
    return [container], started


def _by_name(statuses: list[ContainerStatus] | None) -> dict[str, ContainerStatus]:
    return {status.name: status for status in statuses or ()}


def _events(pod: LivePod, facts: ScanFacts, gap: _Gap) -> list[Event]:
    """Return the events about the container that follows a gap."""
    events = facts.events.get(pod.key, ())
    return [event for event in events if event.involved_object.field_path == gap.next_path]


def _pull_seconds(message: str) -> float | None:
    """Return how long a pull took, with the time in the queue, or None if the text is unknown.

    The text is the kubelet's, such as `Successfully pulled image "x" in 2.5s (1m3s including
    waiting). Image size: 30 bytes.`
    """
    if _NO_PULL in message:
        return 0.0
    found = _PULL_TIME.search(message)
    if found is None:
        return None
    parts = _DURATION_PART.findall(found[2] or found[1])
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    return seconds if parts and seconds <= _MAX_PULL_SECONDS else None


SYMPTOM = Symptom(
    id=ID,
    title=_DEFECT.title,
    defect=_DEFECT,
    areas=("pods", "nodes"),
    judge=judge,
)
