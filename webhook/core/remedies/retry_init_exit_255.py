"""retryInitExit255: run an init container again if its exit code is reported as 255.

If the pod's restartPolicy is Never, one false exit code fails the pod. A restart rule on the exit
code (KEP-5307) restarts an init container even then. The container's work runs twice, so only
containers that the policy names get the rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from webhook.core.constants import DNS_LABEL, OWN_CONTAINERS
from webhook.core.decision_input import ContainerFacts, PodFacts
from webhook.core.defects.versions import RESTART_RULES_ON_BY_DEFAULT
from webhook.core.globs import MAX_CONTAINER_GLOBS
from webhook.core.patch.builder import PodPatch
from webhook.core.patch.edits import Edit
from webhook.core.pod import Container, RestartRule, is_sidecar
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies.base import Context, Remedy
from webhook.core.types import NOT_EMPTY, StrictModel, TextPattern

EXIT_CODE = 255
RESTART_RULES = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [EXIT_CODE]}}]

ContainerName = Annotated[
    str,
    TextPattern(
        f"^{DNS_LABEL}$",
        "is not a container's name: list each by its name, without wildcards, because its work "
        "runs again",
    ),
]


class RetryInitExit255(StrictModel):
    """Settings of the remedy `retryInitExit255`."""

    when: Literal["NodesNeedIt", "Always"] = Field(
        default="NodesNeedIt",
        description="NodesNeedIt: skip the remedy if no node that the pod could land on runs an "
        "affected CRI-O. Always: apply it on all nodes.",
    )
    init_containers: Annotated[tuple[ContainerName, ...], NOT_EMPTY] = Field(
        strict=False,
        max_length=MAX_CONTAINER_GLOBS,
        json_schema_extra={"minItems": 1},
        description="Names of the init containers whose work may run twice.",
    )


def apply(
    pod: PodFacts, settings: RetryInitExit255, context: Context, patch: PodPatch
) -> Iterator[Outcome]:
    """Give each named init container the restart rule, if the pod's restartPolicy is Never."""
    rejection: tuple[Reason | None, str] | None = None
    for index, container in enumerate(pod.init_containers or ()):
        if container.name not in settings.init_containers or container.name in OWN_CONTAINERS:
            continue
        outcome = _skip_outcome(pod, container)
        if outcome is not None:
            yield outcome
            continue
        # Computed at most once, because a pod may have hundreds of containers of one name.
        rejection = rejection or _rejection(pod, settings, context, patch)
        reason, message = rejection
        if reason is not None:
            yield Outcome(reason, container=container.name, message=message)
            continue
        patch.set_restart_rules(index, RESTART_RULES)
        message = f"restarted if it exits with {EXIT_CODE}"
        yield Outcome(Reason.APPLIED, container=container.name, changed=True, message=message)


def _rejection(
    pod: PodFacts, settings: RetryInitExit255, context: Context, patch: PodPatch
) -> tuple[Reason | None, str]:
    """Return why no container of a pod gets the rule in this cluster, with a message.

    The reason is None if containers may get the rule.
    """
    spec, nodes = context.spec_with_runtime_class(pod, patch), context.cluster.nodes
    if settings.when == "NodesNeedIt" and not nodes.need("retryInitExit255", spec):
        return Reason.NOT_NEEDED, ""
    if message := context.server_is_older_than(RESTART_RULES_ON_BY_DEFAULT):
        return Reason.SERVER_TOO_OLD, message
    if nodes.may_lack_restart_rules(spec, among_all=settings.when == "Always"):
        message = "needs Kubernetes 1.35 or later; the kubelet of a node is older"
        return Reason.SERVER_TOO_OLD, message
    return None, ""


def _skip_outcome(pod: PodFacts, container: ContainerFacts) -> Outcome | None:
    """Return the outcome for a container that needs no rule or cannot have one, or None.

    The outcome depends on the pod alone, not on the cluster.
    """
    name, policy, rules = container.name, container.restart_policy, container.restart_policy_rules
    if is_sidecar(container):
        return Outcome(Reason.NATIVE_SIDECAR, container=name)
    matching_rule = next(filter(_matches_exit_code, rules or ()), None)
    if matching_rule is not None and matching_rule.action.startswith("Restart"):
        return Outcome(Reason.ALREADY_SETTLED, container=name)
    if policy == "OnFailure":
        message = "its own restartPolicy restarts it after every failure"
        return Outcome(Reason.ALREADY_SETTLED, container=name, message=message)
    if policy or rules:
        return Outcome(Reason.RESTART_POLICY_PRESET, container=name)
    if pod.restart_policy != "Never":
        message = "the pod's restartPolicy restarts it after every failure"
        return Outcome(Reason.ALREADY_SETTLED, container=name, message=message)
    return None


def _matches_exit_code(rule: RestartRule) -> bool:
    """Return whether a restart rule applies to the exit code 255."""
    codes = rule.exit_codes
    if codes is None or codes.operator not in ("In", "NotIn"):
        return False
    return (EXIT_CODE in (codes.values or ())) == (codes.operator == "In")


_RULES = msgspec.convert(RESTART_RULES, list[RestartRule])


def undo_in_container(container: dict[str, Any]) -> None:
    """Remove the rule, and the policy that the API server requires beside it."""
    if container.get("restartPolicyRules") == RESTART_RULES:
        del container["restartPolicyRules"]
        container.pop("restartPolicy", None)


def container_sign(container: Container) -> str:
    """Return what the rules do, if the container has them."""
    if container.restart_policy_rules != _RULES:
        return ""
    return "The kubelet runs the container again if it ends with exit code 255."


REMEDY = Remedy(
    name="retryInitExit255",
    description="Run named init containers again if they are reported to have ended with exit "
    "code 255. Only in pods whose restartPolicy is Never. Needs Kubernetes 1.35.",
    settings=RetryInitExit255,
    apply=apply,
    own_reasons=frozenset(
        {
            Reason.NATIVE_SIDECAR,
            Reason.RESTART_POLICY_PRESET,
            Reason.NOT_NEEDED,
            Reason.SERVER_TOO_OLD,
        }
    ),
    effect=lambda _settings: f"started again after exit code {EXIT_CODE}",
    proposed_settings=None,
    native="it changes single containers, and only fields of the whole pod are exported",
    container_sign=container_sign,
    undo_in_container=undo_in_container,
    edits=frozenset({Edit.RESTART_RULES}),
)
