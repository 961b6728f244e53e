"""The conditions in a SettlePolicy's status, in the form of KEP-1623.

Long because each condition has its function, and the functions share the search for nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from webhook.core.cluster.nodes import Node
from webhook.core.cluster.view import ClusterView
from webhook.core.constants import LABEL_POLICY
from webhook.core.defects.versions import (
    SELINUX_MOUNT_LOCKED_ON,
    is_affected_by_cri_o_9840,
    makes_volatile_mounts,
)
from webhook.core.policy.crd import CRD_NAME
from webhook.core.policy.crd_comparison import CrdDifference
from webhook.core.policy.errors import FieldError
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.webhook_selectors import WebhookSelectors

Json: TypeAlias = dict[str, Any]
Status: TypeAlias = Literal["True", "False", "Unknown"]

_MAX_NAMED = 5
"""The maximum number of nodes or fields in a message, because people read it in a terminal."""
_MAX_ERRORS = 10
"""The maximum number of errors in the message of the condition Accepted."""


class Condition(NamedTuple):
    """One condition, without the time of its last transition."""

    type: str
    status: Status
    reason: str
    message: str


def accepted(problems: Sequence[FieldError], earlier_in_force: bool) -> Condition:
    """Return the condition Accepted: whether the policy is valid.

    `earlier_in_force` says whether an earlier, valid state of the policy is in force. It matters
    only for an invalid policy.
    """
    if not problems:
        return Condition("Accepted", "True", "Valid", "The policy is in force.")
    left = len(problems) - _MAX_ERRORS
    listed = "; ".join(map(str, problems[:_MAX_ERRORS])) + (f"; {left} more" if left > 0 else "")
    what = "The last valid state stays in force" if earlier_in_force else "Not in force"
    return Condition("Accepted", "False", "Invalid", f"{what}: {listed}")


def crd_current(difference: CrdDifference | None) -> Condition:
    """Return the condition CRDCurrent: whether the installed CRD has every field of this release.

    `difference` is None if the installed CRD could not be read.
    """
    if difference is None:
        message = f"CustomResourceDefinition {CRD_NAME} could not be read; /readyz says why."
        return Condition("CRDCurrent", "Unknown", "NotRead", message)
    if difference.lacks:
        return Condition("CRDCurrent", "False", "Outdated", f"{crd_note(difference)}.")
    if difference.other_defaults:
        return Condition("CRDCurrent", "Unknown", "OtherDefaults", f"{crd_note(difference)}.")
    message = "The installed CRD has every field that podsettle reads."
    return Condition("CRDCurrent", "True", "Current", message)


def crd_note(difference: CrdDifference) -> str:
    """Return how an installed CRD differs from this release's, and what to do about it.

    The result is empty if they agree.
    """
    apply = "kubectl apply --server-side --force-conflicts -f charts/podsettle/crds"
    if difference.lacks:
        return (
            f"CustomResourceDefinition {CRD_NAME} is older than podsettle and lacks "
            f"{_list_paths(difference.lacks)}. The API server drops these fields from policies "
            f"without an error, and refuses these values. Apply the CRD of this release: {apply}"
        )
    if difference.other_defaults:
        return (
            f"CustomResourceDefinition {CRD_NAME} has other defaults than podsettle: "
            f"{_list_paths(difference.other_defaults)}. New policies get the defaults of the "
            "installed CRD. Unless it is of a newer release, apply the CRD of this release: "
            f"{apply}"
        )
    return ""


def _list_paths(paths: Sequence[str]) -> str:
    left = len(paths) - _MAX_NAMED
    return ", ".join(paths[:_MAX_NAMED]) + (f" and {left} more" if left > 0 else "")


def webhook_scoped(policy: SettlePolicy, selectors: WebhookSelectors) -> Condition:
    """Return the condition WebhookScoped.

    It says whether the API server evaluates the policy's selectors before it calls podsettle.
    """
    if policy.spec.namespace_selector is None:
        message = (
            f"The API server calls podsettle for the pods of namespaces labelled "
            f"{LABEL_POLICY}: {policy.metadata.name}."
        )
        return Condition("WebhookScoped", "True", "OptIn", message)
    if selectors.merged_because:
        message = (
            f"Broad, because {selectors.merged_because}. One webhook serves all policies, so the "
            "API server also calls podsettle for pods that no policy covers. With failurePolicy: "
            "Fail it refuses those pods too while podsettle is down."
        )
        return Condition("WebhookScoped", "False", "TooManySelectors", message)
    message = "The API server calls podsettle only for pods that the selectors of policies match."
    return Condition("WebhookScoped", "True", "Selectors", message)


def runtime_classes_found(policy: SettlePolicy, view: ClusterView) -> Condition:
    """Return the condition RuntimeClassesFound: whether the policy's RuntimeClasses exist."""
    names = policy.spec.runtime_classes()
    missing = [name for name in names if view.runtime_class(name) is None]
    if missing:
        message = f"RuntimeClass {', '.join(missing)} does not exist. Its remedy is skipped."
        return Condition("RuntimeClassesFound", "False", "RuntimeClassMissing", message)
    if not names:
        message = "The policy names no RuntimeClass."
        return Condition("RuntimeClassesFound", "True", "NoneNamed", message)
    message = f"RuntimeClass {', '.join(names)} exists."
    return Condition("RuntimeClassesFound", "True", "Found", message)


def still_needed(policy: SettlePolicy, view: ClusterView) -> Condition:
    """Return the condition StillNeeded: whether a node still has a problem that the policy cures.

    A remedy whose problem no release fixes keeps the policy needed. The setting `when` matters only
    for `runtimeClass`, where it says what the problem is. The other remedies are judged by the
    nodes even with `when: Always`.
    """
    needs = tuple(_needs(policy, view))
    # The policy is needed if one remedy is. It may be removed only if every remedy may be.
    for status in ("True", "Unknown", "False"):
        deciding = [need for need in needs if need.status == status]
        if deciding:
            break
    message = " ".join(need.sentence(alone=len(needs) == 1) for need in needs)
    if status == "False":
        message += " The policy can be removed."
    return Condition("StillNeeded", deciding[0].status, deciding[0].reason, message)


class _Need(NamedTuple):
    """Whether some of a policy's remedies are still needed, and why."""

    status: Status
    reason: str
    message: str
    remedies: tuple[str, ...] = ()

    def sentence(self, *, alone: bool) -> str:
        if self.remedies and not alone:
            return f"{', '.join(self.remedies)}: {self.message}."
        return f"{self.message[0].upper()}{self.message[1:]}."


class _NodeSet(NamedTuple):
    """The nodes that pods could land on, and a phrase for messages that names the set."""

    nodes: tuple[Node, ...]
    description: str = ""

    def need(
        self, remedies: tuple[str, ...], is_affected: Callable[[Node], bool], what: str
    ) -> _Need:
        """Return whether remedies are needed: whether a node is affected.

        `what` names the affected software, for the message.
        """
        count = len(self.nodes)
        if not count:
            return _Need("Unknown", "NoNodes", f"no node{self.description} is known", remedies)
        affected = [node for node in self.nodes if is_affected(node)]
        if not affected:
            message = f"none of {count} nodes{self.description} runs {what}"
            return _Need("False", "NodesAreFixed", message, remedies)
        verb = "runs" if len(affected) == 1 else "run"
        message = f"{len(affected)} of {count} nodes{self.description} still {verb} {what}"
        return _Need("True", "NodesAreAffected", f"{message}: {_list_nodes(affected)}", remedies)


def _needs(policy: SettlePolicy, view: ClusterView) -> Iterator[_Need]:
    """Yield the need for each remedy of a policy. Remedies with the same problem share one."""
    names = list(policy.spec.settings())
    runtime_class = policy.spec.remedies.runtime_class
    relabel = policy.spec.remedies.skip_selinux_relabel
    all_nodes = _NodeSet(view.nodes.all)
    only_volatile = runtime_class is not None and runtime_class.when == "NodesNeedIt"
    # With `when: Always` pods land on the nodes of the class, except pods that name another class.
    # The exception does not matter: the remedy runtimeClass alone then keeps the policy needed.
    nodes = (
        _nodes_of_class(runtime_class.name, view)
        if runtime_class and not only_volatile
        else all_nodes
    )
    covered: list[str] = []

    remedies = tuple(name for name in names if name in ("postInitSleep", "retryInitExit255"))
    if remedies:
        yield nodes.need(
            remedies, lambda n: is_affected_by_cri_o_9840(n.runtime), "an affected CRI-O"
        )
        covered += remedies
    if relabel:
        # The remedy annotates only pods that run under its class.
        class_name = relabel.runtime_class_name
        yield _relabelling_need(_nodes_of_class(class_name, view) if class_name else nodes)
        covered.append("skipSELinuxRelabel")
    if only_volatile:
        what = "a runtime other than CRI-O 1.22 or later"
        yield all_nodes.need(
            ("runtimeClass",), lambda n: not makes_volatile_mounts(n.runtime), what
        )
        covered.append("runtimeClass")

    remaining = [name for name in names if name not in covered]
    if remaining:
        message = f"no release that podsettle knows makes {', '.join(remaining)} unnecessary"
        yield _Need("True", "NoReleaseCures", message)


def _relabelling_need(nodes: _NodeSet) -> _Need:
    """Return whether skipSELinuxRelabel is needed.

    CRI-O relabels every volume until Kubernetes locks SELinuxMount on. After that, CRI-O relabels
    only some volumes.
    """
    remedies = ("skipSELinuxRelabel",)
    need = nodes.need(remedies, _relabels_volumes, "CRI-O below Kubernetes 1.37")
    count = sum(node.runtime.name == "cri-o" for node in nodes.nodes)
    if need.status != "False":
        return need
    if not count:
        return nodes.need(remedies, lambda _node: False, "CRI-O")
    message = (
        f"on {count} of {len(nodes.nodes)} nodes{nodes.description}, CRI-O relabels only volumes "
        "that SELinuxMount of Kubernetes 1.37 does not mount with a label, such as those whose "
        "CSIDriver lacks seLinuxMount: true; podsettle does not know whether such volumes exist"
    )
    return _Need("Unknown", "VolumesNotSeen", message, remedies)


def _relabels_volumes(node: Node) -> bool:
    return node.runtime.name == "cri-o" and (
        node.kubelet is None or node.kubelet < SELINUX_MOUNT_LOCKED_ON
    )


def _nodes_of_class(name: str, view: ClusterView) -> _NodeSet:
    """Return the nodes that a RuntimeClass's nodeSelector matches.

    Return all nodes if the class does not exist or has no nodeSelector.
    """
    runtime_class = view.runtime_class(name)
    if runtime_class is None or not runtime_class.node_selector:
        return _NodeSet(view.nodes.all)
    required_labels = runtime_class.node_selector.items()
    nodes = tuple(node for node in view.nodes.all if required_labels <= node.labels.items())
    return _NodeSet(nodes, f" of RuntimeClass {name}")


def merge_conditions(
    conditions: Iterable[Condition], stored: Iterable[Mapping[str, Any]], generation: int, now: str
) -> list[Json]:
    """Return the conditions in the form in which the API stores them.

    A condition with the same status as the stored one keeps its lastTransitionTime. Any other
    condition gets `now`.
    """
    stored_by_type = {condition.get("type"): condition for condition in stored}
    return [
        {
            "type": condition.type,
            "status": condition.status,
            "observedGeneration": generation,
            "lastTransitionTime": _transition_time(
                condition, stored_by_type.get(condition.type), now
            ),
            "reason": condition.reason,
            "message": condition.message,
        }
        for condition in conditions
    ]


def _transition_time(condition: Condition, stored: Mapping[str, Any] | None, now: str) -> str:
    if stored is None or stored.get("status") != condition.status:
        return now
    return str(stored.get("lastTransitionTime", now))


def _list_nodes(nodes: Sequence[Node]) -> str:
    first = sorted(nodes, key=lambda node: node.name)[:_MAX_NAMED]
    left = len(nodes) - len(first)
    return ", ".join(f"{node.name} ({node.runtime})" for node in first) + (
        f" and {left} more" if left else ""
    )
