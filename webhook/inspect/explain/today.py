"""What podsettle would do today, what the nodes need, and what of it is not known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from webhook.cluster.rights import Right
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.still_needed import all_nodes, remedy_needs
from webhook.core.preview.model import PodPreview
from webhook.core.preview.preview import Preview, preview_all, render
from webhook.core.reasons import NOT_EVALUATED, Reason
from webhook.core.remedies.policy_nodes import PolicyNodes
from webhook.inspect.cluster_flags import ClusterFlags
from webhook.inspect.explain.model import NodeNeed, Unknown
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.webhook_calls import Called, WebhookCall
from webhook.inspect.webhook_configurations_api import CONFIGURATIONS_RESOURCE, CONFIGURATIONS_RIGHT

_ACTS = frozenset(
    {
        Reason.APPLIED,
        Reason.ALREADY_SETTLED,
        Reason.UNSTABLE_SELINUX_LEVEL,
        Reason.WOULD_APPLY,
    }
)
"""The reasons of remedies that a pod has, or would get."""
_ASSUMPTIONS = {
    "runtimeclasses": "today's decision treats each one as missing",
    "nodes": "today's decision treats remedies with `when: NodesNeedIt` as needed",
}
"""What a decision assumes if the objects of a kind could not be read."""


def decide_today(
    cluster: KnownCluster, document: Mapping[str, Any], namespace: str
) -> PodPreview | None:
    """Return the decision of today on the pod of an object, without the pod's node.

    Return None if no decision is possible, or if the object holds no pod.
    """
    if not cluster.can_decide(namespace):
        return None
    for result in preview_all(
        document, cluster.view.policies, cluster.view, cluster.settings, namespace=namespace
    ):
        if isinstance(result, Preview):
            return render(result)
    return None


def call_for(cluster: KnownCluster, today: PodPreview | None) -> WebhookCall | None:
    """Return whether the API server calls podsettle for a new pod like that of a decision.

    Return None if podsettle would do nothing, or if there is no API server.
    """
    if today is None or cluster.calls is None:
        return None
    namespace = cluster.view.namespace(today.namespace)
    # A pod with such an outcome was decoded, so its labels are texts.
    if namespace is None or not any(each.reason in _ACTS for each in today.outcomes):
        return None
    return cluster.calls.call_for(namespace, today.before["metadata"].get("labels") or {})


def evaluated_remedies(today: PodPreview | None) -> Iterator[tuple[str, str]]:
    """Yield the policy and the remedy of each outcome for a remedy that concerns the pod."""
    for outcome in today.outcomes if today else ():
        if outcome.policy and outcome.reason not in NOT_EVALUATED:
            yield outcome.policy, outcome.remedy


def node_needs(view: Snapshot, pairs: Iterable[tuple[str, str]]) -> list[NodeNeed]:
    """Return whether the nodes need each pair of a policy and a remedy of it.

    Pairs of policies that do not exist, or no longer set the remedy, are left out.
    """
    documents = {policy.metadata.name: policy for policy in view.policies.documents}
    nodes = all_nodes(view)
    found = []
    for policy, remedy in dict.fromkeys(pairs):
        document = documents.get(policy)
        if document is not None and remedy in document.spec.settings():
            found.append(_node_need(document, remedy, nodes))
    return found


def node_sentence(view: Snapshot, name: str | None, remedies: Iterable[str]) -> str:
    """Return whether a pod's node has the defects that remedies cure, in sentences.

    The result is empty if the node is not known, or if the remedies cure no defect.
    """
    node = next((each for each in view.nodes.all if each.name == name), None)
    if node is None:
        return ""
    wanted = set(remedies)
    return " ".join(
        f"The pod's node {node.name} ({node.software_of(defect)}) is "
        f"{node.status_for(defect)}: {defect.title} ({defect.id})."
        for defect in view.nodes.defects
        if not wanted.isdisjoint(defect.remedies)
    )


def unknown_parts(cluster: KnownCluster, namespace: str, call: WebhookCall | None) -> list[Unknown]:
    """Return what could not be read, with the missing right and what is assumed instead.

    `call` says whether the API server calls podsettle.
    """
    found = []
    if call is not None and call.called is Called.UNKNOWN:
        why = f"{call.why}; whether the API server calls podsettle for a new pod is not known"
        readable = cluster.calls is not None and cluster.calls.readable
        found.append(
            Unknown(what=CONFIGURATIONS_RESOURCE, why=why)
            if readable
            else missing_right(CONFIGURATIONS_RESOURCE, CONFIGURATIONS_RIGHT, why, cluster.flags)
        )
    for unread in cluster.unread:
        why = unread.why
        if cluster.can_decide(namespace) and unread.resource in _ASSUMPTIONS:
            why += f"; {_ASSUMPTIONS[unread.resource]}"
        found.append(
            missing_right(unread.resource, unread.right, why, cluster.flags)
            if unread.is_denied
            else Unknown(what=unread.resource, why=why)
        )
    return found


def missing_right(what: str, right: Right, why: str, flags: ClusterFlags) -> Unknown:
    """Return the note about something that could not be read without a right."""
    return Unknown(what=what, why=why, right=str(right), command=flags.command(right.command))


def _node_need(policy: SettlePolicy, remedy: str, nodes: PolicyNodes) -> NodeNeed:
    need = remedy_needs(policy, nodes)[remedy]
    message = need.message if need else "no release that podsettle knows makes it unnecessary"
    return NodeNeed(
        policy=policy.metadata.name,
        remedy=remedy,
        still_needed=need.status if need else "True",
        sentence=f"{message[0].upper()}{message[1:]}.",
    )
