"""kubeletGate: keep the pod Pending until its node's kubelet has a serving certificate.

On a node that has just joined, the API server cannot fetch logs until the kubelet's certificate is
issued: `remote error: tls: internal error`. Clients that follow a pod's log as soon as it runs
then fail. The remedy injects an init container, the gate, that waits for the certificate. Until
then the pod's phase stays Pending. After a timeout the gate ends with exit code 0, and the pod
starts as it would without the gate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec.structs import replace
from pydantic import AfterValidator, ConfigDict, Field

from webhook.core.constants import KUBELET_GATE, START_GATE
from webhook.core.decision_input import PodFacts
from webhook.core.durations import (
    TIMEOUT_NOT_ZERO_RULE,
    Delay,
    check_not_zero,
    format_duration,
)
from webhook.core.patch.builder import PodPatch
from webhook.core.patch.edits import Edit
from webhook.core.pod import Container
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies import service_mesh
from webhook.core.remedies.base import Context, Remedy
from webhook.core.remedies.gates import (
    GATE_REASONS,
    HELD_BY_ITS_GATE,
    HOST_IP_VARIABLE,
    duration_option,
    gate_container,
    gate_options,
    outcome_without_new_gate,
    waits_for_targets,
)
from webhook.core.types import StrictModel

_WITH_TARGETS_OPTION = "--kubelet"
"""The option with the timeout, in the arguments of a gate that waits for targets too."""


class KubeletGate(StrictModel):
    """Settings of the remedy `kubeletGate`."""

    model_config = ConfigDict(
        json_schema_extra={"x-kubernetes-validations": [TIMEOUT_NOT_ZERO_RULE]}
    )

    timeout: Annotated[Delay, AfterValidator(check_not_zero)] = Field(
        # The certificate in woodpecker#5550 took 15 s to be approved. The default is twice that.
        default=30_000,
        description="The longest time for which a pod waits for its node's kubelet. After that, "
        "the pod starts anyway.",
    )


def apply(
    pod: PodFacts, settings: KubeletGate, context: Context, patch: PodPatch
) -> Iterator[Outcome]:
    """Add the gate after the other init containers, or before the one that sets up a mesh.

    If the patch inserts a start gate, one gate for both takes its place. It costs the time of one
    container, and waits for both side by side.
    """
    outcome = outcome_without_new_gate(KUBELET_GATE, pod, context, patch)
    if outcome is not None:
        yield replace(outcome, effect=_effect_of_gate(pod, settings))
        return
    if pod.is_on_fargate:
        # aws/containers-roadmap issue 1798
        message = "pods on Fargate cannot connect to their kubelet"
        yield Outcome(Reason.NOT_APPLICABLE, message=message)
        return
    timeout = format_duration(settings.timeout)
    start_gate = patch.inserted_init_container(START_GATE)
    if start_gate is not None:
        args = [*start_gate["args"], _WITH_TARGETS_OPTION, timeout]
        merged = {"name": KUBELET_GATE, "args": args, "env": [HOST_IP_VARIABLE]}
        patch.change_inserted(START_GATE, merged)
    else:
        gate = gate_container(KUBELET_GATE, pod, context, patch)
        gate |= {"args": ["wait-kubelet", "--timeout", timeout], "env": [HOST_IP_VARIABLE]}
        patch.put_init_container(gate, service_mesh.connecting_places(pod)[-1])
    message = f"held until the kubelet has a certificate, for up to {timeout}"
    yield Outcome(Reason.APPLIED, changed=True, message=message)


def _effect_of_gate(pod: PodFacts, settings: KubeletGate) -> str:
    """Return what the gate of a pod does, if that is not what the settings say.

    The gate can be older than the policy, or that of another policy: a copy of a pod keeps its
    gate.
    """
    gate = next((each for each in pod.init_containers or () if each.name == KUBELET_GATE), None)
    if gate is None:
        return ""
    option = _WITH_TARGETS_OPTION if waits_for_targets(gate) else "--timeout"
    timeout = duration_option(gate_options(gate), option)
    if timeout == settings.timeout:
        return ""
    return HELD_BY_ITS_GATE if timeout is None else f"{HELD_BY_ITS_GATE} {_clause(timeout)}"


def effect(settings: KubeletGate) -> str:
    """Return what the remedy does to a pod."""
    return f"held {_clause(settings.timeout)}"


def _clause(timeout_ms: int) -> str:
    """Return for what a pod is held, as a clause after `held`."""
    timeout = format_duration(timeout_ms, separator=" ")
    return f"until its node's kubelet has a serving certificate, for at most {timeout}"


def container_sign(container: Container) -> str:
    """Return what the gate does, if the container is the gate."""
    if container.name != KUBELET_GATE:
        return ""
    targets = ", and the addresses and names in its arguments answer"
    return (
        "podsettle added this container. It waits until the kubelet of the pod's node can serve "
        f"logs{targets if waits_for_targets(container) else ''}, or until its timeout, and ends."
    )


REMEDY = Remedy(
    name="kubeletGate",
    description="Keep the pod Pending until its node's kubelet has a serving certificate. Then "
    "its log can be read from the beginning.",
    settings=KubeletGate,
    apply=apply,
    own_reasons=GATE_REASONS | {Reason.NOT_APPLICABLE},
    effect=effect,
    proposed_settings=lambda _found: {},
    native="it adds an init container, whose resources and place depend on the other containers",
    container_sign=container_sign,
    edits=frozenset({Edit.INIT_CONTAINER}),
)
