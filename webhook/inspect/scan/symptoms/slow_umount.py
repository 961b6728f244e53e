"""A long gap between the end of an init container and the start of the next container.

containerd reports the end only after the umount of the root filesystem, and the kubelet begins with
the next container only then. So its first event about that container shows whether the umount took
the time. If the kubelet began early, the gap has another cause: the pull of the image, or a
ConfigMap that was missing. It has one too if an event in the gap says that the pod waited.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from webhook.core.durations import parse_duration
from webhook.inspect.findings import Certainty, Finding, format_time
from webhook.inspect.objects import ContainerStatus
from webhook.inspect.scan.symptoms.base import Case, event_evidence, symptom_of

_MIN_GAP = timedelta(seconds=60)
"""Shorter gaps have many causes. The report has a gap of 15 min."""
_PULLED = "Pulled"
"""The reason of the event about the end of a pull. A cluster has many events about containers, so a
scan reads those of single pods only."""
_OTHER_CAUSES = {"FailedCreatePodSandBox", "FailedMount", "NetworkNotReady", "SandboxChanged"}
"""The reasons of the kubelet's events about a pod that delay all of its containers (kubernetes
`pkg/kubelet/events/event.go`)."""
_NO_PULL = "already present on machine"
_PULL_TIME = re.compile(r" in (\S+?)(?: \((\S+) including waiting\))?\.?(?: |$)")
_MAX_PULL_SECONDS = 7 * 86_400
"""No pull takes longer. A tenant can write an event with any duration."""


def find(case: Case) -> Iterator[Finding]:
    """Yield a finding for each long gap, unless an event shows that it has another cause."""
    regular = {f"spec.containers{{{each.name}}}" for each in case.pod.spec.containers or ()}
    for ended, finished_at, path, started_at in _long_gaps(case):
        seconds = round((started_at - finished_at).total_seconds())
        name = path.partition("{")[2][:-1]
        of_pod = (each for each in case.events if not each.involved_object.field_path)
        if any(
            each.reason in _OTHER_CAUSES
            and (first := each.first_time)
            and (last := each.time)
            and first <= started_at
            and last >= finished_at
            for each in of_pod
        ):
            continue
        # The kubelet may have begun with another container, whose image it could not pull.
        paths = regular if path in regular else {path}
        events = [each for each in case.events if each.involved_object.field_path in paths]
        of_next = (each for each in events if each.involved_object.field_path == path)
        pulled = next((event for event in of_next if event.reason == _PULLED), None)
        pull_seconds = _pull_seconds(pulled.message) if pulled else None
        begins = [time for event in events if (time := event.first_time) is not None]
        if pulled is not None and pulled.first_time is not None:
            begins.append(pulled.first_time - timedelta(seconds=pull_seconds or 0))
        if begins and (min(begins) - finished_at).total_seconds() * 2 < seconds:
            continue
        end, start = f"state.terminated.finishedAt of {ended}", f"startedAt of {name}"
        evidence = [
            case.evidence(end, f"{seconds} s before the start of {name}", finished_at),
            case.evidence(start, format_time(started_at), started_at),
        ]
        if pulled is not None:
            evidence.append(event_evidence(pulled))
        sentence = (
            f"{name} started {seconds} s after init container {ended} had ended, on node "
            f"{case.pod.spec.node_name}"
        )
        certainty = Certainty.LIKELY
        if pull_seconds is None:
            sentence += "; when the kubelet began with it is unknown"
            certainty = Certainty.POSSIBLE
        yield from case.on_node(case.finding(certainty, sentence, evidence, finished_at))


def _long_gaps(case: Case) -> Iterator[tuple[str, datetime, str, datetime]]:
    """Yield the long gaps of a pod, in the order of its containers.

    Each has the name and the end of an init container, and of the next container the path in
    events, such as `spec.containers{main}`, and the start.
    """
    spec, status = case.pod.spec, case.pod.status
    inits = spec.init_containers or []
    statuses = {each.name: each for each in status.init_container_statuses or ()}
    if not statuses:
        return
    starts = [_start("initContainers", each.name, statuses) for each in inits[1:]]
    regular = {each.name: each for each in status.container_statuses or ()}
    # If one has restarted, its first start is unknown, and so is the order.
    restarted = any(each.restart_count for each in regular.values())
    known = [_start("containers", each.name, regular) for each in spec.containers or ()]
    started = [] if restarted else [each for each in known if each is not None]
    starts.append(min(started, key=lambda each: each[1], default=None))
    for init, start in zip(inits, starts, strict=False):
        found = statuses.get(init.name)
        ended = found.state.terminated if found is not None and found.state is not None else None
        # A native sidecar starts before the next init container, and does not end.
        if start is None or ended is None or init.restart_policy == "Always":
            continue
        end = ended.finished_at
        if end and case.is_plausible(end) and start[1] - end >= _MIN_GAP:
            yield (init.name, end, *start)


def _start(
    kind: str, name: str, statuses: Mapping[str, ContainerStatus]
) -> tuple[str, datetime] | None:
    """Return the path and the first start of a container, or None if it is not known."""
    status = statuses.get(name)
    if status is None or status.restart_count or status.state is None:
        return None
    started = status.state.started_at
    return (f"spec.{kind}{{{name}}}", started) if started is not None else None


def _pull_seconds(message: str) -> float | None:
    """Return how long a pull took, with the time in the queue, or None if the text is unknown.

    The text is the kubelet's, such as `Successfully pulled image "x" in 2.5s (1m3s including
    waiting). Image size: 30 bytes.`
    """
    if _NO_PULL in message:
        return 0.0
    found = _PULL_TIME.search(message)
    try:
        seconds = parse_duration(found and (found[2] or found[1])) / 1_000
    except ValueError:
        return None
    return seconds if seconds <= _MAX_PULL_SECONDS else None


SYMPTOM = symptom_of("containerd-slow-umount", ("pods", "nodes"), find)
