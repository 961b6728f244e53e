"""kubeletGate: keep the pod Pending until its node's kubelet has a serving certificate.

On a node that has just joined, the API server cannot fetch logs until the kubelet's certificate is
issued: `remote error: tls: internal error`. Clients that follow a pod's log as soon as it runs
then fail. The remedy injects an init container, the gate, that waits for the certificate. Until
then the pod's phase stays Pending. After a timeout the gate ends with exit code 0, and the pod
starts as it would without the gate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

from webhook.core.constants import HELPER_IN_IMAGE, KUBELET_GATE
from webhook.core.decision_input import ContainerFacts, NamespaceFacts, PodFacts
from webhook.core.durations import Delay, format_duration
from webhook.core.patch.builder import PodPatch
from webhook.core.patch.edits import Edit
from webhook.core.pod import Container, Toleration
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies import service_mesh
from webhook.core.remedies.base import Context, Remedy
from webhook.core.remedies.injected_container import (
    injected_container,
    short_container_options,
)
from webhook.core.types import StrictModel

_ZERO_TIMEOUT_MESSAGE = "timeout is 0: leave the remedy out instead"


def _check_timeout(timeout: int) -> int:
    if not timeout:
        raise ValueError(_ZERO_TIMEOUT_MESSAGE)
    return timeout


class KubeletGate(StrictModel):
    """Settings of the remedy `kubeletGate`."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "duration(self.timeout) >= duration('1ms')",
                    "message": _ZERO_TIMEOUT_MESSAGE,
                    "fieldPath": ".timeout",
                }
            ]
        }
    )

    timeout: Annotated[Delay, AfterValidator(_check_timeout)] = Field(
        # The certificate in woodpecker#5550 took 15 s to be approved. The default is twice that.
        default=30_000,
        description="The longest time for which a pod waits for its node's kubelet. After that, "
        "the pod starts anyway.",
    )


def apply(
    pod: PodFacts, settings: KubeletGate, context: Context, patch: PodPatch
) -> Iterator[Outcome]:
    """Add the gate after the other init containers, or before the one that sets up a mesh.

    If another webhook has added a mesh, an existing gate may be unable to connect. Then move it
    before the init container that redirects connections. Without such a container, the mesh's proxy
    is itself an init container (a native sidecar), and the gate moves to the end.
    This is after the proxy.
    """
    inits = pod.init_containers or ()
    gate_index = next(
        (i for i, container in enumerate(inits) if container.name == KUBELET_GATE), None
    )
    mesh_index = service_mesh.intercepting_index(inits)
    if is_needed_before_certificate(pod, context.namespace):
        yield Outcome(Reason.SYSTEM_POD)
    elif _is_name_taken(pod, inits):
        yield Outcome(Reason.NAME_CONFLICT)
    elif service_mesh.blocks_init_containers(inits):
        yield Outcome(Reason.MESH_TRAFFIC)
    elif gate_index is not None and service_mesh.can_connect(inits, gate_index):
        yield Outcome(Reason.ALREADY_SETTLED)
    elif gate_index is not None:
        patch.move_init_container(gate_index, mesh_index)
        where = (
            f"before {inits[mesh_index].name}"
            if mesh_index is not None
            else "after the mesh's proxy"
        )
        yield Outcome(Reason.APPLIED, changed=True, message=f"moved {where}")
    elif context.cluster.linger_image is None:
        yield Outcome(Reason.HELPER_IMAGE_MISSING)
    else:
        patch.put_init_container(_gate_container(pod, settings, context, patch), mesh_index)
        timeout = format_duration(settings.timeout)
        message = f"held until the kubelet has a certificate, for up to {timeout}"
        yield Outcome(Reason.APPLIED, changed=True, message=message)


def is_needed_before_certificate(pod: PodFacts, namespace: NamespaceFacts) -> bool:
    """Return whether a node may need the pod before its kubelet has a serving certificate."""
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


def _is_name_taken(pod: PodFacts, inits: Sequence[ContainerFacts]) -> bool:
    """Return whether a container other than the gate has its name, or two containers have it."""
    if any(container.name == KUBELET_GATE for container in pod.containers or ()):
        return True
    gates = [container for container in inits if container.name == KUBELET_GATE]
    return len(gates) > 1 or any((gate.command or [""])[0] != HELPER_IN_IMAGE for gate in gates)


def _gate_container(
    pod: PodFacts, settings: KubeletGate, context: Context, patch: PodPatch
) -> dict[str, Any]:
    """Return the init container that waits for the kubelet's certificate."""
    template = next(iter(pod.containers or ()), None)
    keep_alive = short_container_options(pod, context, patch)
    host_ip_variable = {
        "name": "HOST_IP",
        "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}},
    }
    return {
        **injected_container(KUBELET_GATE, context.cluster.linger_image or "", pod, template),
        "command": [HELPER_IN_IMAGE, *keep_alive, HELPER_IN_IMAGE]
        if keep_alive
        else [HELPER_IN_IMAGE],
        "args": ["wait-kubelet", "--timeout", format_duration(settings.timeout)],
        "env": [host_ip_variable],
    }


def effect(settings: KubeletGate) -> str:
    """Return what the remedy does to a pod."""
    timeout = format_duration(settings.timeout, separator=" ")
    return f"held until its node's kubelet has a serving certificate, for at most {timeout}"


def container_sign(container: Container) -> str:
    """Return what the gate does, if the container is the gate."""
    if container.name != KUBELET_GATE:
        return ""
    return (
        "podsettle added this container. It waits until the kubelet of the pod's node can serve "
        "logs, or until its timeout, and ends."
    )


REMEDY = Remedy(
    name="kubeletGate",
    description="Keep the pod Pending until its node's kubelet has a serving certificate. Then "
    "its log can be read from the beginning.",
    settings=KubeletGate,
    apply=apply,
    reasons=frozenset(
        {
            Reason.APPLIED,
            Reason.ALREADY_SETTLED,
            Reason.SYSTEM_POD,
            Reason.NAME_CONFLICT,
            Reason.MESH_TRAFFIC,
            Reason.HELPER_IMAGE_MISSING,
        }
    ),
    effect=effect,
    proposed_settings=lambda _found: {},
    native="it adds an init container, whose resources and place depend on the other containers",
    container_sign=container_sign,
    edits=frozenset({Edit.INIT_CONTAINER}),
)
