"""Gates: init containers that hold a pod until something outside the pod answers.

A gate runs the helper in the helper's own image, so nothing has to be delivered to the pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webhook.core.constants import HELPER_IN_IMAGE, HELPER_PATH, KUBELET_GATE, START_GATE, WAIT
from webhook.core.decision_input import (
    ContainerFacts,
    NamespaceFacts,
    PodFacts,
    gate_command_of,
)
from webhook.core.durations import parse_duration
from webhook.core.patch.builder import PodPatch
from webhook.core.pod import Container, Toleration
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies import service_mesh
from webhook.core.remedies.base import Context
from webhook.core.remedies.injected_container import injected_container, short_container_options

HOST_IP_VARIABLE = {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
"""The environment variable from which the helper reads the address of the node's kubelet."""

HELD_BY_ITS_GATE = "held by its gate"
"""What the gate of a pod does, if it is not the gate that the settings describe."""

GATE_REASONS = frozenset(
    {
        Reason.SYSTEM_POD,
        Reason.NAME_CONFLICT,
        Reason.MESH_TRAFFIC,
        Reason.HELPER_IMAGE_MISSING,
    }
)


def outcome_without_new_gate(
    name: str, pod: PodFacts, context: Context, patch: PodPatch
) -> Outcome | None:
    """Return the outcome if the pod has the gate already, or cannot have it. Otherwise return None.

    If another webhook has added a mesh, an existing gate may be unable to connect. Then move it
    before the init container that redirects connections. Without such a container, the mesh's proxy
    is itself an init container (a native sidecar), and the gate moves to the end.
    This is after the proxy.

    A gate that a version without this remedy has wrapped needs the helper, which is copied before.
    It does not move before a mesh, and starts the pod after its timeout.
    """
    inits = pod.init_containers or ()
    if is_needed_by_node(pod, context.namespace):
        return Outcome(Reason.SYSTEM_POD)
    gates = [index for index, container in enumerate(inits) if container.name == name]
    if (
        len(gates) > 1
        or any(container.name == name for container in pod.containers or ())
        # A version of podsettle that does not know the gate may have wrapped it.
        or any((inits[i].command or [""])[0] not in (HELPER_IN_IMAGE, HELPER_PATH) for i in gates)
    ):
        return Outcome(Reason.NAME_CONFLICT)
    places = service_mesh.connecting_places(pod)
    if not places:
        return Outcome(Reason.MESH_TRAFFIC)
    if gates:
        has_redirecting = places[-1] < len(inits)
        if gates[0] in places or (has_redirecting and inits[gates[0]].starts_helper):
            return Outcome(Reason.ALREADY_SETTLED)
        patch.move_init_container(gates[0], places[-1])
        where = f"before {inits[places[-1]].name}" if has_redirecting else "after the mesh's proxy"
        return Outcome(Reason.APPLIED, changed=True, message=f"moved {where}")
    if context.cluster.linger_image is None:
        return Outcome(Reason.HELPER_IMAGE_MISSING)
    return None


def is_needed_by_node(pod: PodFacts, namespace: NamespaceFacts) -> bool:
    """Return whether a new node may need the pod before anything that a gate waits for answers."""
    return (
        "DaemonSet" in pod.owner_kinds
        or any(map(_tolerates_every_no_schedule_taint, pod.decoded_tolerations))
        or pod.priority_class_name == "system-node-critical"
        or (bool(pod.host_network) and namespace.is_system)
    )


def _tolerates_every_no_schedule_taint(toleration: Toleration) -> bool:
    return (
        not toleration.key
        and toleration.operator == "Exists"
        and toleration.effect in (None, "", "NoSchedule")
    )


def waits_for_targets(container: Container | ContainerFacts) -> bool:
    """Return whether a container is a gate that waits for targets."""
    if container.name != KUBELET_GATE:
        return container.name == START_GATE
    command = gate_command_of(container) if isinstance(container, Container) else container.command
    return (command or ("",))[-1] == WAIT


def gate_options(gate: ContainerFacts) -> tuple[tuple[str, str], ...]:
    """Return the options in the arguments of a gate, such as `("--timeout", "15s")`.

    A client may have written them.
    """
    _command, *arguments = gate.gate_args or ("",)
    return tuple(zip(arguments[::2], arguments[1::2], strict=False))


def duration_option(options: Sequence[tuple[str, str]], name: str) -> int | None:
    """Return the milliseconds in an option of a gate, or None if it has no such duration."""
    try:
        return parse_duration(dict(options)[name])
    except (KeyError, ValueError):
        return None


def gate_container(name: str, pod: PodFacts, context: Context, patch: PodPatch) -> dict[str, Any]:
    """Return the init container of a gate: it runs the helper, without arguments."""
    template = next(iter(pod.containers or ()), None)
    options = short_container_options(pod, context, patch)
    return injected_container(name, context, pod, template, options)
