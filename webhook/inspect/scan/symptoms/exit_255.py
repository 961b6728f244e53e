"""Exit code 255 of containers that ended quickly on a node with cri-o#9840.

Only a container that ends within milliseconds is affected. The kubelet stores whole seconds, so a
lifetime of up to two seconds counts. A program may end with 255 of its own accord, so the finding
is never certain: CRI-O's log on the node has the proof.

On a busy node CRI-O may also lose the exit code of a container that postInitSleep keeps alive. Then
the finding is only possible.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from webhook.core.constants import GATES, HELPER
from webhook.core.decision_input import wrapped_command_of
from webhook.core.durations import format_duration
from webhook.core.pod import Container, is_sidecar, restarts_always
from webhook.core.remedies.post_init_sleep import is_kept_alive, kept_alive_ms
from webhook.inspect.findings import Certainty, Finding, FoundContainer
from webhook.inspect.scan.symptoms.base import Case, symptom_of

_LOST_EXIT_CODE = 255
_INIT = "status.initContainerStatuses"
"""The beginning of the paths of the statuses of init containers."""
_MAX_LIFETIME = timedelta(seconds=2)
_REASONS = ("Error", "")
"""CRI-O names another reason if the kernel ended a container (`server/container_status.go`)."""
_KILLED_PODS = ("Evicted", "DeadlineExceeded", "Preempting", "Terminated")
"""The reasons of pods whose containers the kubelet itself ended (kubernetes `pkg/kubelet`:
`active_deadline.go`, `eviction`, `preemption` and `nodeshutdown`)."""
_NOT_EXECUTED = re.compile(r"exec \S+: [a-z ]+\n?")
"""A log of runc, which ends with 255 if the kernel cannot execute a file, such as one of another
architecture (runc `libcontainer/init_linux.go`: `Init`). The status may end with a log."""


def find(case: Case) -> Iterator[Finding]:
    """Yield a finding for each container whose exit code the runtime may have lost."""
    for container, path, started, finished in _ended(case):
        init, command = path.startswith(_INIT), wrapped_command_of(container)
        kept_alive = container.name == HELPER or is_kept_alive(command)
        lifetime = round((finished - started).total_seconds())
        sentence = (
            f"{'init container' if init else 'container'} {container.name} ended with exit code "
            f"255 within {max(lifetime, 1)} s of its start on node {case.pod.spec.node_name}"
        )
        if kept_alive:
            ms = kept_alive_ms(command)
            time = f" for at least {format_duration(ms, separator=' ')}" if ms else ""
            sentence += (
                f", although postInitSleep keeps it alive{time}: either its program ended with "
                "255, or `minLifetime` is too short"
            )
        evidence = (
            case.evidence(f"{path}.exitCode", str(_LOST_EXIT_CODE), finished),
            case.evidence(f"{path}.startedAt", f"{lifetime} s before finishedAt", started),
        )
        found = FoundContainer(container.name, init, kept_alive)
        certainty = Certainty.POSSIBLE if kept_alive else Certainty.LIKELY
        finding = case.finding(certainty, sentence, evidence, finished, container=found)
        yield from case.on_node(finding)


def _ended(case: Case) -> Iterator[tuple[Container, str, datetime, datetime]]:
    """Yield the containers that ended quickly, each with the path, begin and end of this state."""
    spec = case.pod.spec
    if case.pod.status.reason in _KILLED_PODS:
        return
    # A container that restarts always is not expected to end, and its exit code decides nothing.
    regular = [x for x in spec.containers or () if not restarts_always(x, spec.restart_policy)]
    for path, each in case.statuses:
        containers = spec.init_containers if path.startswith(_INIT) else regular
        for field, state in (("state", each.state), ("lastState", each.last_state)):
            ended = state.terminated if state is not None else None
            begin, end = (ended.started_at, ended.finished_at) if ended else (None, None)
            if ended is None or begin is None or end is None or not case.is_plausible(begin):
                continue
            if (ended.exit_code, ended.signal) != (_LOST_EXIT_CODE, 0):
                continue
            if ended.reason not in _REASONS or not timedelta() <= end - begin <= _MAX_LIFETIME:
                continue
            if _NOT_EXECUTED.fullmatch(ended.message) or _was_stopped(case, each.name, begin, end):
                continue
            container = next((known for known in containers or () if known.name == each.name), None)
            # Sidecars and gates do not end soon after their start.
            if container and not (is_sidecar(container) or container.name in GATES):
                yield container, f"{path}.{field}.terminated", begin, end
            break


def _was_stopped(case: Case, name: str, begin: datetime, end: datetime) -> bool:
    """Return whether the pod was disrupted or deleted, or the container stopped, before its end."""
    deleted_at = case.pod.metadata.deleted_at
    if deleted_at is not None and deleted_at <= end:
        return True
    disrupted = case.pod.status.condition("DisruptionTarget")
    if disrupted and disrupted.status == "True" and (disrupted.last_transition_time or end) <= end:
        return True
    return any(
        begin <= (time or end) <= end
        for each in case.events
        if each.reason == "Killing" and each.involved_object.field_path.endswith(f"{{{name}}}")
        for time in (each.first_time, each.time)
    )


SYMPTOM = symptom_of("cri-o-9840", ("pods", "nodes"), find)
