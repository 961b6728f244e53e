"""Exit code 255 of containers that ended quickly on a node with cri-o#9840.

Only a container that ends within milliseconds is affected. The kubelet stores whole seconds, so a
lifetime of up to two seconds counts. A program may end with 255 of its own accord, so the finding
is never certain: CRI-O's log on the node has the proof.

On a busy node CRI-O may also lose the exit code of a container that postInitSleep keeps alive. Then
the finding is only possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from webhook.core.constants import GATES, HELPER
from webhook.core.decision_input import wrapped_command_of
from webhook.core.durations import format_duration
from webhook.core.pod import Container, is_sidecar
from webhook.core.remedies.post_init_sleep import is_kept_alive, kept_alive_ms
from webhook.inspect.findings import Certainty, Finding, FoundContainer
from webhook.inspect.objects import StateDetails
from webhook.inspect.scan.symptoms.base import Case, NodeEvidence, defect_named, symptom_of

_DEFECT = defect_named("cri-o-9840")
_LOST_EXIT_CODE = 255
_MAX_LIFETIME = timedelta(seconds=2)
_REASONS = ("Error", "")
"""CRI-O names another reason if the kernel ended a container (`server/container_status.go`)."""


class _Ended(NamedTuple):
    """A container that ended with the exit code that a runtime reports if it has lost it."""

    container: Container
    init: bool
    path: str
    """The path of the state."""
    state: StateDetails


def find(case: Case) -> Iterator[Finding]:
    """Yield a finding for each container whose exit code the runtime may have lost."""
    found = list(_ended(case, init=True))
    # A container of a pod that restarts always is not expected to end, and its exit code decides
    # nothing.
    if case.pod.spec.restart_policy in ("Never", "OnFailure"):
        found += _ended(case, init=False)
    node = case.node if found else None
    if node is not None:
        yield from (_finding(case, each, node) for each in found)


def _ended(case: Case, *, init: bool) -> Iterator[_Ended]:
    """Yield the containers that ended quickly."""
    spec, status = case.pod.spec, case.pod.status
    containers = spec.init_containers if init else spec.containers
    statuses = status.init_container_statuses if init else status.container_statuses
    path = "status.initContainerStatuses" if init else "status.containerStatuses"
    for index, each in enumerate(statuses or ()):
        for field, state in (("state", each.state), ("lastState", each.last_state)):
            ended = state.terminated if state is not None else None
            if ended is None or not _lost(case, ended):
                continue
            container = next((known for known in containers or () if known.name == each.name), None)
            # Sidecars and gates do not end soon after their start.
            if container and not (is_sidecar(container) or container.name in GATES):
                yield _Ended(container, init, f"{path}[{index}].{field}.terminated", ended)
            break


def _lost(case: Case, terminated: StateDetails) -> bool:
    started, finished = terminated.started_at, terminated.finished_at
    return (
        terminated.exit_code == _LOST_EXIT_CODE
        and not terminated.signal
        and terminated.reason in _REASONS
        and started is not None
        and finished is not None
        and timedelta() <= finished - started <= _MAX_LIFETIME
        and case.is_plausible(started)
    )


def _finding(case: Case, found: _Ended, node: NodeEvidence) -> Finding:
    container, init, path, ended = found
    command = wrapped_command_of(container)
    kept_alive = container.name == HELPER or is_kept_alive(command)
    started, finished = ended.started_at, ended.finished_at
    lifetime = round((finished - started).total_seconds()) if started and finished else 0
    sentence = (
        f"{'init container' if init else 'container'} {container.name} ended with exit code 255 "
        f"within {max(lifetime, 1)} s of its start on node {case.pod.spec.node_name}"
    )
    if kept_alive:
        milliseconds = kept_alive_ms(command)
        time = (
            f" for at least {format_duration(milliseconds, separator=' ')}" if milliseconds else ""
        )
        sentence += (
            f", although postInitSleep keeps it alive{time}: either its program ended with 255, or "
            "`minLifetime` is too short"
        )
    return case.finding(
        Certainty.POSSIBLE if kept_alive else Certainty.LIKELY,
        sentence,
        (
            case.evidence(f"{path}.exitCode", str(ended.exit_code), finished),
            case.evidence(f"{path}.startedAt", f"{lifetime} s before finishedAt", started),
        ),
        finished,
        node=node,
        container=FoundContainer(container.name, init, kept_alive),
    )


SYMPTOM = symptom_of(_DEFECT, ("pods", "nodes"), find)
