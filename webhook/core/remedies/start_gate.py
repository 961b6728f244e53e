"""startGate: keep the pod Pending until addresses and names that it needs answer.

A pod on a new node, or with a new address, may start before what it needs answers: an agent of the
node that issues credentials (eks-pod-identity-agent#159), a NetworkPolicy that is programmed late
(kube-router#1652), or DNS (kubernetes#76790). Its Job then fails. The remedy injects an init
container, the gate, that waits in the pod's own network until each target has answered once. After
a timeout the gate ends with exit code 0, and the pod starts as it would without the gate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec.structs import replace
from pydantic import AfterValidator, ConfigDict, Field

from webhook.core.cluster.helper_version import HelperFeature
from webhook.core.constants import ANNOTATION_START_GATE, KUBELET_GATE, START_GATE, WAIT
from webhook.core.decision_input import PodFacts
from webhook.core.durations import (
    TIMEOUT_NOT_ZERO_RULE,
    LongDelay,
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
    duration_option,
    gate_container,
    gate_options,
    outcome_without_new_gate,
    waits_for_targets,
)
from webhook.core.remedies.start_targets import (
    MAX_TARGETS,
    Pair,
    StartTarget,
    parse_pod_targets,
    parse_target_options,
)
from webhook.core.types import NOT_EMPTY, StrictModel


class StartGate(StrictModel):
    """Settings of the remedy `startGate`."""

    model_config = ConfigDict(
        json_schema_extra={"x-kubernetes-validations": [TIMEOUT_NOT_ZERO_RULE]}
    )

    wait_for: Annotated[tuple[StartTarget, ...], NOT_EMPTY] = Field(
        strict=False,
        max_length=MAX_TARGETS,
        json_schema_extra={"minItems": 1},
        description="The targets. The pod waits until each of them has answered once.",
    )
    timeout: Annotated[LongDelay, AfterValidator(check_not_zero)] = Field(
        # An agent of a new node was seen to answer after some seconds.
        default=15_000,
        description="The longest time for which a pod waits. After that, the pod starts anyway.",
    )
    pod_targets: bool = Field(
        default=False,
        description=f"Whether the annotation {ANNOTATION_START_GATE} of a pod may add up to 4 "
        "targets.",
    )


def apply(
    pod: PodFacts, settings: StartGate, context: Context, patch: PodPatch
) -> Iterator[Outcome]:
    """Add the gate before all other init containers of the pod.

    There it connects without the proxy of a mesh, which would accept every connection. Where only a
    place behind a proxy is possible, the pod gets no gate.
    """
    targets, problem = _merged_targets(pod, settings)
    outcome = _outcome_without_new_gate(pod, targets, context, patch)
    if outcome is None:
        gate = gate_container(START_GATE, pod, context, patch)
        timeout = format_duration(settings.timeout)
        gate["command"].append(WAIT)
        gate["args"] = ["--timeout", timeout]
        for kind, text in targets:
            gate["args"] += [f"--{kind}", text]
        patch.put_init_container(gate, 0)
        message = f"held until {_subject(targets)}, for up to {timeout}"
        outcome = Outcome(Reason.APPLIED, changed=True, message=message)
    if problem and (outcome.changed or outcome.reason is Reason.ALREADY_SETTLED):
        yield Outcome(Reason.ANNOTATION_IGNORED, message=problem)
    yield replace(outcome, effect=_effect_of_gate(pod, targets, settings))


def _outcome_without_new_gate(
    pod: PodFacts, targets: Sequence[Pair], context: Context, patch: PodPatch
) -> Outcome | None:
    """Return the outcome if the pod has a gate already, or cannot have one, and else None."""
    inits = pod.init_containers or ()
    if any(each.name == KUBELET_GATE and waits_for_targets(each) for each in inits):
        return Outcome(Reason.ALREADY_SETTLED)  # kubeletGate moves it if it has to.
    outcome = outcome_without_new_gate(START_GATE, pod, context, patch)
    if outcome is not None:
        return outcome
    if service_mesh.is_behind_proxy(pod):
        return Outcome(Reason.MESH_TRAFFIC, message=_BEHIND_PROXY)
    if any(kind == "tcp" for kind, _ in targets) and (
        service_mesh.accepts_every_connection(pod, context.namespace)
    ):
        return Outcome(Reason.MESH_TRAFFIC, message=_AMBIENT)
    missing = context.missing_in_helper(HelperFeature.WAIT)
    return Outcome(Reason.HELPER_TOO_OLD, message=missing) if missing else None


_BEHIND_PROXY = (
    "The CNI plugin of a service mesh redirects the pod's connections to the mesh's proxy, which "
    "accepts every connection at once."
)
_AMBIENT = (
    "The pod is behind ztunnel (Istio's ambient mode, or Cilium's mTLS), which accepts every "
    "connection at once. Only http and dns targets can be waited for."
)


def _merged_targets(pod: PodFacts, settings: StartGate) -> tuple[Sequence[Pair], str]:
    """Return the targets of the policy and of the pod's annotation.

    The text says why the annotation does not count, for the author of the pod. It is empty if the
    annotation counts, or if the pod has none.
    """
    own = list(dict.fromkeys(target.pair for target in settings.wait_for))
    text = (pod.annotations or {}).get(ANNOTATION_START_GATE)
    if text is None:
        return own, ""
    try:
        if not settings.pod_targets:
            raise ValueError("the policy does not set podTargets")
        return list(dict.fromkeys((*own, *parse_pod_targets(text)))), ""
    except ValueError as error:
        return own, f"{ANNOTATION_START_GATE}: {error}; only the targets of the policy count"


def _effect_of_gate(pod: PodFacts, targets: Sequence[Pair], settings: StartGate) -> str:
    """Return what the gate of a pod does, or will do if the pod has none yet.

    The gate can be older than the policy, or that of another policy: a copy of a pod keeps its
    gate, which waits for what it was made to wait for.
    """
    wanted = f"held {_clause(targets, settings.timeout)}"
    gate = next(filter(waits_for_targets, pod.init_containers or ()), None)
    if gate is None:
        return wanted
    options = gate_options(gate)
    own_targets, timeout = parse_target_options(options), duration_option(options, "--timeout")
    if (own_targets, timeout) == (tuple(targets), settings.timeout):
        return wanted
    if not own_targets or timeout is None:
        return HELD_BY_ITS_GATE
    return f"{HELD_BY_ITS_GATE} {_clause(own_targets, timeout)}"


def _subject(targets: Sequence[Pair]) -> str:
    """Return a clause such as `mysql.prod:3306 and 2 more answer`. It names one target."""
    (_, first), *others = targets
    return f"{first} and {len(others)} more answer" if others else f"{first} answers"


def effect(settings: StartGate) -> str:
    """Return what the remedy does to a pod that adds no targets."""
    return f"held {_clause([target.pair for target in settings.wait_for], settings.timeout)}"


def _clause(targets: Sequence[Pair], timeout_ms: int) -> str:
    """Return for what a pod is held, as a clause after `held`."""
    timeout = format_duration(timeout_ms, separator=" ")
    return f"until {_subject(targets)}, for at most {timeout}"


def container_sign(container: Container) -> str:
    """Return what the gate does, if the container is the gate, or the one of kubeletGate too."""
    if not waits_for_targets(container):
        return ""
    return (
        "podsettle added this container. It waits until the addresses and names in its arguments "
        "answer, or until its timeout, and ends."
    )


REMEDY = Remedy(
    name="startGate",
    description="Keep the pod Pending until addresses and names that it needs answer.",
    settings=StartGate,
    apply=apply,
    own_reasons=GATE_REASONS | {Reason.HELPER_TOO_OLD, Reason.ANNOTATION_IGNORED},
    effect=effect,
    proposed_settings=None,
    native="it adds an init container, whose resources and place depend on the other containers",
    container_sign=container_sign,
    edits=frozenset({Edit.INIT_CONTAINER}),
    helper_feature=HelperFeature.WAIT,
)
