"""What is known of the cluster while something is explained, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from webhook.cluster.live_view import NOT_INSTALLED, Unread
from webhook.cluster.rights import Right
from webhook.core.admission.decider import OperatorSettings
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.status import all_nodes, remedy_needs
from webhook.core.preview.model import PodPreview
from webhook.core.preview.preview import Preview, preview_all, render
from webhook.core.reasons import Reason
from webhook.core.remedies.policy_nodes import PolicyNodes
from webhook.inspect.cluster_flags import ClusterFlags
from webhook.inspect.explain.model import NodeNeed, Unknown
from webhook.inspect.webhook_calls import Called, WebhookCall, WebhookCalls
from webhook.inspect.webhook_configurations import CONFIGURATIONS_RESOURCE, CONFIGURATIONS_RIGHT

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


@dataclass(frozen=True, slots=True)
class KnownCluster:
    """The view of a cluster, and what it lacks."""

    view: Snapshot
    settings: OperatorSettings
    unread: tuple[Unread, ...] = ()
    created: Mapping[str, datetime] = field(default_factory=dict)
    """When each policy was created, by its name."""
    calls: WebhookCalls | None = None
    """For which pods the API server calls podsettle. None if there is no API server."""
    flags: ClusterFlags = field(default_factory=ClusterFlags)
    """The flags with which printed commands use this cluster."""

    def can_decide(self, namespace: str) -> bool:
        """Return whether the policies and the labels of a namespace were read."""
        kinds = {unread.resource for unread in self.unread}
        if "settlepolicies" in kinds:
            return False
        return "namespaces" not in kinds or self.view.namespace(namespace) is not None

    def decide(self, document: Mapping[str, Any], namespace: str) -> PodPreview | None:
        """Return the decision of today on the pod of an object, without the pod's node.

        Return None if no decision is possible, or if the object holds no pod.
        """
        if not self.can_decide(namespace):
            return None
        for result in preview_all(
            document, self.view.policies, self.view, self.settings, namespace=namespace
        ):
            if isinstance(result, Preview):
                return render(result)
        return None

    def call_for(self, today: PodPreview | None) -> WebhookCall | None:
        """Return whether the API server calls podsettle for a new pod like that of a decision.

        Return None if podsettle would do nothing, or if there is no API server.
        """
        if today is None or self.calls is None:
            return None
        namespace = self.view.namespace(today.namespace)
        # A pod with such an outcome was decoded, so its labels are texts.
        if namespace is None or not any(each.reason in _ACTS for each in today.outcomes):
            return None
        return self.calls.call_for(namespace, today.before["metadata"].get("labels") or {})

    def node_needs(self, pairs: Iterable[tuple[str, str]]) -> list[NodeNeed]:
        """Return whether the nodes need each pair of a policy and a remedy of it.

        Pairs of policies that do not exist, or no longer set the remedy, are left out.
        """
        documents = {policy.metadata.name: policy for policy in self.view.policies.documents}
        nodes = all_nodes(self.view)
        found = []
        for policy, remedy in dict.fromkeys(pairs):
            document = documents.get(policy)
            if document is not None and remedy in document.spec.settings():
                found.append(_node_need(document, remedy, nodes))
        return found

    def node_sentence(self, name: str | None, remedies: Iterable[str]) -> str:
        """Return whether a pod's node has the defects that remedies cure, in sentences.

        The result is empty if the node is not known, or if the remedies cure no defect.
        """
        node = next((each for each in self.view.nodes.all if each.name == name), None)
        if node is None:
            return ""
        wanted = set(remedies)
        return " ".join(
            f"The pod's node {node.name} ({node.software_of(defect)}) is "
            f"{node.status_for(defect)}: {defect.title} ({defect.id})."
            for defect in self.view.nodes.defects
            if not wanted.isdisjoint(defect.remedies)
        )

    def unknown(self, namespace: str, call: WebhookCall | None) -> list[Unknown]:
        """Return what could not be read, with the missing right and what is assumed instead.

        `call` says whether the API server calls podsettle.
        """
        found = []
        if call is not None and call.called is Called.UNKNOWN:
            why = f"{call.why}; whether the API server calls podsettle for a new pod is not known"
            readable = self.calls is not None and self.calls.readable
            found.append(
                Unknown(what=CONFIGURATIONS_RESOURCE, why=why)
                if readable
                else missing_right(CONFIGURATIONS_RESOURCE, CONFIGURATIONS_RIGHT, why, self.flags)
            )
        for unread in self.unread:
            why = unread.why
            if self.can_decide(namespace) and unread.resource in _ASSUMPTIONS:
                why += f"; {_ASSUMPTIONS[unread.resource]}"
            found.append(
                Unknown(what=unread.resource, why=why)
                if unread.why == NOT_INSTALLED
                else missing_right(unread.resource, unread.right, why, self.flags)
            )
        return found


def missing_right(what: str, right: Right, why: str, flags: ClusterFlags) -> Unknown:
    """Return the note about something that could not be read without a right."""
    return Unknown(what=what, why=why, right=str(right), command=flags.add_to(right.command))


def _node_need(policy: SettlePolicy, remedy: str, nodes: PolicyNodes) -> NodeNeed:
    need = remedy_needs(policy, nodes)[remedy]
    message = need.message if need else "no release that podsettle knows makes it unnecessary"
    return NodeNeed(
        policy=policy.metadata.name,
        remedy=remedy,
        still_needed=need.status if need else "True",
        sentence=f"{message[0].upper()}{message[1:]}.",
    )
