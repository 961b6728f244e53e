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

from webhook.core.constants import GATES, HELPER
from webhook.core.decision_input import wrapped_command_of
from webhook.core.durations import format_duration
from webhook.core.pod import Container, is_sidecar
from webhook.core.remedies.post_init_sleep import is_kept_alive, kept_alive_ms
from webhook.inspect.findings import Certainty, Evidence, Finding, FoundContainer
from webhook.inspect.objects import ContainerStatus, LivePod, Terminated
from webhook.inspect.scan.symptoms.base import (
    NodeEvidence,
    ScanFacts,
    Symptom,
    defect_named,
    is_plausible,
    make_finding,
    node_evidence,
)

ID = "exit-255"
_DEFECT = defect_named("cri-o-9840")
_LOST_EXIT_CODE = 255
_MAX_LIFETIME = timedelta(seconds=2)
_REASONS = ("Error", "")
"""CRI-O names another reason if the kernel ended a container (`server/container_status.go`)."""


def judge(pod: LivePod, facts: ScanFacts) -> Iterator[Finding]:
    """Yield a finding for each container whose exit code the runtime may have lost."""
    status, spec = pod.status, pod.spec
    inits = tuple(_ended(pod, status.init_container_statuses, spec.init_containers))
    # A container of a pod that restarts always is not expected to end, and its exit code decides
    # nothing.
    runs_to_completion = spec.restart_policy in ("Never", "OnFailure")
    regular = tuple(
        _ended(pod, status.container_statuses, spec.containers) if runs_to_completion else ()
    )
    if not inits and not regular:
        return
    node = node_evidence(pod, facts, _DEFECT)
    if node is None:
        return
    for path, container, terminated in inits:
        path = f"status.initContainerStatuses{path}"
        yield _finding(pod, path, container, terminated, node, init=True)
    for path, container, terminated in regular:
        path = f"status.containerStatuses{path}"
        yield _finding(pod, path, container, terminated, node, init=False)


def _ended(
    pod: LivePod, statuses: list[ContainerStatus] | None, containers: list[Container] | None
) -> Iterator[tuple[str, Container, Terminated]]:
    """Yield the path of the state, the container and the state of each that ended quickly."""
    by_name: dict[str, Container] | None = None
    for index, status in enumerate(statuses or ()):
        for field, state in (("state", status.state), ("lastState", status.last_state)):
            terminated = state.terminated if state is not None else None
            if terminated is None or not _lost(pod, terminated):
                continue
            if by_name is None:
                by_name = {container.name: container for container in containers or ()}
            container = by_name.get(status.name)
            if container is not None and _is_exposed(container):
                yield f"[{index}].{field}.terminated", container, terminated
                break


def _lost(pod: LivePod, terminated: Terminated) -> bool:
    started, finished = terminated.started_at, terminated.finished_at
    return (
        terminated.exit_code == _LOST_EXIT_CODE
        and not terminated.signal
        and terminated.reason in _REASONS
        and started is not None
        and finished is not None
        and timedelta() <= finished - started <= _MAX_LIFETIME
        and is_plausible(pod, started)
    )


def _is_exposed(container: Container) -> bool:
    """Return whether a container can end soon after its start, and its exit code matters."""
    return not (is_sidecar(container) or container.name in GATES)


def _finding(
    pod: LivePod,
    path: str,
    container: Container,
    terminated: Terminated,
    node: NodeEvidence,
    *,
    init: bool,
) -> Finding:
    command = wrapped_command_of(container)
    kept_alive = container.name == HELPER or is_kept_alive(command)
    kind = "init container" if init else "container"
    started, finished = terminated.started_at, terminated.finished_at
    lifetime = round((finished - started).total_seconds()) if started and finished else 0
    evidence = (
        Evidence(pod.title, f"{path}.exitCode", str(terminated.exit_code), finished),
        Evidence(pod.title, f"{path}.startedAt", f"{lifetime} s before finishedAt", started),
    )
    sentence = (
        f"{kind} {container.name} ended with exit code 255 within {max(lifetime, 1)} s of its "
        f"start on node {pod.spec.node_name}"
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
    return make_finding(
        ID,
        pod,
        Certainty.POSSIBLE if kept_alive else Certainty.LIKELY,
        sentence,
        evidence,
        finished,
        defect=_DEFECT,
        node=node,
        container=FoundContainer(container.name, init, kept_alive),
    )


SYMPTOM = Symptom(
    id=ID,
    title=_DEFECT.title,
    defect=_DEFECT,
    areas=("pods", "nodes"),
    judge=judge,
)
