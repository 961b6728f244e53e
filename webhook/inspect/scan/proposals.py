"""Policies that scans and explanations propose, with what a preview says of the pods found.

A policy is proposed only if it changes a pod. It names the containers and namespaces that were
found, and a label that the pods share. If all of them are pods of Tekton's TaskRuns, it selects all
such pods in these namespaces, and all of their init containers. It has `action: Audit`, so it
changes nothing before a person removes that line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any, TypeAlias

import yaml

from webhook.core.admission.decision import Decision
from webhook.core.constants import API_VERSION, KIND, LABEL_NAMESPACE_NAME
from webhook.core.kubectl_yaml import KubectlDumper
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy, parse_policy
from webhook.core.policy.validation_errors import InvalidPolicyError
from webhook.core.printable import printable
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies import REMEDIES
from webhook.inspect.findings import MAX_LISTED
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.scan.found_pods import FoundPods, PodKind
from webhook.inspect.scan.model import CLASSES_UNKNOWN, PodCount, PolicyPreview

_MIN_PRIORITY = -(2**31)
"""The lowest priority that the CRD allows."""
_MAX_NAMESPACES = 50
"""The maximum number of namespaces in a policy, because people read it."""
_IN_SYSTEM_NAMESPACE = "in a namespace of the cluster itself, which you have to add to the policy"
_UNCOMPARED = "not previewed, because there are too many different pods"
_AUDIT_LINE = "  action: Audit\n"
_AUDIT_COMMENT = "  action: Audit # reports only; delete this line to change new pods\n"

Proposal: TypeAlias = tuple[str, PolicyPreview]
"""A policy as YAML, which is empty if it would change none of the pods, and the preview of it."""


def propose(found: FoundPods, cluster: KnownCluster) -> Proposal | None:
    """Return a policy for the pods of a symptom. Return None if podsettle proposes no remedy.

    The policy is decided on as if it changed pods, together with the policies in force.
    """
    remedies = found.defect.remedies
    proposable = (name for name in remedies if REMEDIES[name].proposed_settings is not None)
    remedy = next(proposable, None)
    if remedy is None or not found.count:
        return None
    # podsettle changes pods in namespaces of the cluster itself only if a person has named them.
    namespaces = sorted(found.namespaces)[:_MAX_NAMESPACES]
    if not namespaces:
        return _no_policy(remedy, found, _IN_SYSTEM_NAMESPACE)
    try:
        document = _document(remedy, found, namespaces, cluster.view.policies)
        policy = parse_policy({**document, "spec": {**document["spec"], "action": "Mutate"}})
    except InvalidPolicyError as error:  # Names in a dump may be anything.
        return _no_policy(remedy, found, f"no valid policy: {error}")
    trial, proposed = cluster.with_policies([policy]), policy.metadata.name
    replaces = len(trial.view.policies) == len(cluster.view.policies)
    changes = audited = 0
    in_force, unchanged = Counter[str](), Counter[str]()
    for kind in found.kinds.values():
        decision = trial.decide(kind.pod, kind.namespace)
        outcomes = [
            each
            for each in decision.outcomes
            if not (kind.containers and each.container) or each.container in kind.containers
        ]
        others = {
            each.policy
            for each in outcomes
            if each.remedy in remedies and (each.changed or each.reason is Reason.ALREADY_SETTLED)
        } - {proposed}
        changed = {(x.container, x.remedy) for x in outcomes if x.policy == proposed and x.changed}
        reported = {(x.container, x.remedy) for x in outcomes if x.reason is Reason.WOULD_APPLY}
        if changed:
            changes += kind.count
            # Policies that only report would do all that the proposed policy does.
            audited += kind.count * (changed <= reported)
        elif others:
            in_force.update(dict.fromkeys(others, kind.count))
        else:
            why = _why_unchanged(kind, found, namespaces, outcomes, decision, remedy, cluster)
            unchanged[why] += kind.count
    unchanged.update({_UNCOMPARED: found.uncompared, **found.apart})
    nodes, classes = cluster.view.nodes.all, cluster.view.runtime_classes
    warnings = (
        f"RuntimeClass {name}: {clause}"
        for name in policy.spec.runtime_classes()
        if changes and nodes and name in classes
        if (clause := classes[name].no_matching_node(nodes))
    )
    preview = PolicyPreview(
        remedy=remedy,
        pods=found.count,
        changes=changes,
        in_force=_pod_counts(in_force),
        unchanged=_pod_counts(unchanged),
        is_audited=replaces or 0 < changes == audited,
        warning=next(warnings, ""),
    )
    return _as_yaml(document, found, namespaces, preview) if changes else "", preview


def _no_policy(remedy: str, found: FoundPods, why: str) -> Proposal:
    """Return that there is no policy, and why for the pods that it could be for."""
    unchanged = Counter({why: found.count - found.apart.total(), **found.apart})
    return "", PolicyPreview(remedy=remedy, pods=found.count, unchanged=_pod_counts(unchanged))


def _why_unchanged(
    kind: PodKind,
    found: FoundPods,
    namespaces: Collection[str],
    outcomes: Iterable[Outcome],
    decision: Decision,
    remedy: str,
    cluster: KnownCluster,
) -> str:
    """Return why a policy for these namespaces leaves pods as they are.

    `outcomes` are those of the decision that concern the containers with the symptom.
    """
    if kind.namespace not in found.namespaces:
        return _IN_SYSTEM_NAMESPACE
    if kind.namespace not in namespaces:
        return f"in a namespace beyond the first {_MAX_NAMESPACES}: select them by a label"
    for each in outcomes:
        if each.reason is Reason.RUNTIME_CLASS_MISSING and not cluster.lists("runtimeclasses"):
            return CLASSES_UNKNOWN
        if each.remedy == remedy or not each.remedy:
            return f"{each.reason}: {each.sentence}"
    for policy in cluster.view.policies.documents:
        name = policy.metadata.name
        if name in decision.policies and _sets(policy, remedy):
            return f"policy {name} sets {remedy} for them, but not for these containers"
    return "the policy does not select them"


def _sets(policy: SettlePolicy, remedy: str) -> bool:
    return policy.spec.action == "Mutate" and remedy in policy.spec.settings()


def _document(
    remedy: str, found: FoundPods, namespaces: Sequence[str], policies: PolicySet
) -> dict[str, Any]:
    """Return the policy for a remedy. Raises InvalidPolicyError."""
    spec: dict[str, Any] = {"action": "Audit"}
    if priorities := [each.spec.priority for each in policies.documents if _sets(each, remedy)]:
        # Of two policies the first by priority and name sets a remedy. The proposed one selects
        # fewer containers, so no policy in force may lose the remedy to it.
        spec["priority"] = max(min(priorities) - 1, _MIN_PRIORITY)
    named = {"key": LABEL_NAMESPACE_NAME, "operator": "In", "values": list(namespaces)}
    spec["namespaceSelector"] = {"matchExpressions": [named]}
    if selector := found.pod_selector:
        spec["podSelector"] = selector
    proposed = REMEDIES[remedy].proposed_settings
    spec["remedies"] = {remedy: proposed(found.containers) if proposed is not None else {}}
    # `kubectl create` refuses a name that another policy has.
    specs = {each.metadata.name: each.spec for each in policies.documents}
    name, number = f"settle-{remedy.lower()}", 1
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
    while specs.get(name) not in (None, parse_policy(document).spec):
        number += 1
        name = f"settle-{remedy.lower()}-{number}"
        document["metadata"] = {"name": name}
    return document


def _pod_counts(counter: Counter[str]) -> tuple[PodCount, ...]:
    """Return the counts, the largest first. The smallest ones are added up."""
    first, rest = (+counter).most_common(), 0
    while len(first) > MAX_LISTED:
        rest += first.pop()[1]
    return tuple(PodCount(*each) for each in [*first, *([("other reasons", rest)] if rest else [])])


def _as_yaml(
    document: Mapping[str, Any], found: FoundPods, namespaces: Sequence[str], preview: PolicyPreview
) -> str:
    """Return a policy for `kubectl create`, with comments for the person who reads it."""
    text: str = yaml.dump(
        document, Dumper=KubectlDumper, sort_keys=False, width=76, default_flow_style=None
    )
    comments = [f"# The policy {preview.phrase}."]
    if preview.warning:
        # Labels in a dump may have any text, and YAML has line breaks that `wrap` does not know.
        warning = printable(f"{preview.warning}.")
        comments += wrap(warning, 76, initial_indent="# ", subsequent_indent="# ")
    if len(namespaces) < len(found.namespaces):
        named = f"{len(namespaces)} of {len(found.namespaces)} namespaces"
        comments.append(f"# It names {named}. Select all of them by a label.")
    head = "".join(f"{line}\n" for line in comments)
    return head + text.replace(_AUDIT_LINE, _AUDIT_COMMENT, 1)
