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
from webhook.inspect.findings import Certainty, Finding, format_time
from webhook.inspect.objects import ContainerStatus, LivePod
from webhook.inspect.scan.symptoms.base import Case, defect_named, event_evidence, symptom_of

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
    next_name: str
    next_path: str
    """The next container as events name it, such as `spec.containers{main}`."""
    started_at: datetime

    @property
    def seconds(self) -> int:
        """The length of the gap."""
        return round((self.started_at - self.finished_at).total_seconds())


def find(case: Case) -> Iterator[Finding]:
    """Yield a finding for each long gap, unless the kubelet began with the next container early."""
    gaps = _long_gaps(case)
    node = case.node if gaps else None
    if node is None:
        return
    for gap in gaps:
        path = gap.next_path
        events = [each for each in case.events if each.involved_object.field_path == path]
        pulled = next((event for event in events if event.reason == _PULLED), None)
        pull_seconds = _pull_seconds(pulled.message) if pulled else None
        begins = [time for event in events if (time := event.first_time) is not None]
        if pulled is not None and pulled.first_time is not None:
            begins.append(pulled.first_time - timedelta(seconds=pull_seconds or 0))
        if begins and (min(begins) - gap.finished_at).total_seconds() * 2 < gap.seconds:
            continue
        end, start = f"state.terminated.finishedAt of {gap.ended}", f"startedAt of {gap.next_name}"
        length = f"{gap.seconds} s before the start of {gap.next_name}"
        evidence = [
            case.evidence(end, length, gap.finished_at),
            case.evidence(start, format_time(gap.started_at), gap.started_at),
        ]
        if pulled is not None:
            evidence.append(event_evidence(pulled))
        sentence = (
            f"{gap.next_name} started {gap.seconds} s after init container {gap.ended} had ended, "
            f"on node {case.pod.spec.node_name}"
        )
        certainty = Certainty.LIKELY
        if pull_seconds is None:
            sentence += "; when the kubelet began with it is unknown"
            certainty = Certainty.POSSIBLE
        yield case.finding(certainty, sentence, evidence, gap.finished_at, node=node)


def _long_gaps(case: Case) -> list[_Gap]:
    """Return the long gaps of a pod, in the order of its containers."""
    pod = case.pod
    statuses = {status.name: status for status in pod.status.init_container_statuses or ()}
    inits = pod.spec.init_containers or []
    gaps: list[_Gap] = []
    for index, init in enumerate(inits if statuses else ()):
        status = statuses.get(init.name)
        ended = status.state.terminated if status is not None and status.state is not None else None
        # A native sidecar starts before the next init container, and does not end.
        if ended is None or ended.finished_at is None or init.restart_policy == "Always":
            continue
        if index + 1 < len(inits):
            following = inits[index + 1]
            start = _first_start(following, statuses)
            kind = "initContainers"
        else:
            kind = "containers"
            start, following = _first_regular(pod) or (None, init)
        if start is None or not case.is_plausible(ended.finished_at):
            continue
        path = f"spec.{kind}{{{following.name}}}"
        gap = _Gap(init.name, ended.finished_at, following.name, path, start)
        if gap.seconds >= _MIN_GAP_SECONDS:
            gaps.append(gap)
    return gaps


def _first_start(container: Container, statuses: dict[str, ContainerStatus]) -> datetime | None:
    """Return when a container started first, or None if it restarted or has not started."""
    status = statuses.get(container.name)
    if status is None or status.restart_count or status.state is None:
        return None
    return status.state.started_at


def _first_regular(pod: LivePod) -> tuple[datetime, Container] | None:
    """Return when the first regular container started, and which it is.

    If one has restarted, its first start is unknown, and so is the order.
    """
    statuses = {status.name: status for status in pod.status.container_statuses or ()}
    if any(status.restart_count for status in statuses.values()):
        return None
    starts = [
        (started, container)
        for container in pod.spec.containers or ()
        if (started := _first_start(container, statuses)) is not None
    ]
    return min(starts, key=lambda start: start[0], default=None)


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


SYMPTOM = symptom_of(_DEFECT, ("pods", "nodes"), find)
