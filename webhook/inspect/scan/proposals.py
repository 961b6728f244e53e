"""Policies that scans and explanations propose, with what a preview says of the pods found.

A policy is proposed only if it changes a pod. It names the containers and namespaces that were
found, and a label that the pods share. If all of them are pods of Tekton's TaskRuns, it selects all
such pods in these namespaces, and all of their init containers. It has `action: Audit`, so it
changes nothing before a person removes that line.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import Any, NamedTuple

import yaml

from webhook.core.admission.decider import Decider
from webhook.core.admission.review import GroupVersionResource, Request
from webhook.core.constants import API_VERSION, KIND, LABEL_NAMESPACE_NAME
from webhook.core.defects.defect import Defect
from webhook.core.kubectl_yaml import KubectlDumper
from webhook.core.pod import Pod
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy, parse_policy
from webhook.core.policy.plan import compile_policy
from webhook.core.policy.validation_errors import InvalidPolicyError
from webhook.core.printable import printable
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies import REMEDIES
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.scan.found_pods import FoundPods, PodKind, is_system
from webhook.inspect.scan.model import PodCount, PolicyPreview
from webhook.inspect.scan.workload import WorkloadName

_MIN_PRIORITY = -(2**31)
"""The lowest priority that the CRD allows."""
_MAX_NAMESPACES = 50
"""The maximum number of namespaces in a policy, because people read it."""
_MAX_REASONS = 5
"""The maximum number of reasons for which pods stay as they are, because people read them."""
_IN_SYSTEM_NAMESPACE = "in a namespace of the cluster itself, which you have to add to the policy"
_KEPT_ALIVE = (
    "postInitSleep keeps their containers alive already. If CRI-O's log on the node has `Failed to "
    "update container state` for them (before CRI-O 1.34), or if their own logs show no failure, "
    "raise `minLifetime` in the policy"
)
_CLASSES_UNKNOWN = "no RuntimeClass could be read, so each one counts as missing"
_UNCOMPARED = "not previewed, because there are too many different pods"
_PODS = GroupVersionResource("", "v1", "pods")
_AUDIT_LINE = "  action: Audit\n"
_AUDIT_COMMENT = "  action: Audit # reports only; delete this line to change new pods\n"


class Proposal(NamedTuple):
    """A policy for the pods of a symptom, and the preview of it."""

    policy: str
    """The policy as YAML. Empty if it would change none of the pods."""
    preview: PolicyPreview


def proposed_remedy(defect: Defect) -> str | None:
    """Return the remedy that a proposed policy has. None if podsettle proposes none."""
    return next(
        (name for name in defect.remedies if REMEDIES[name].proposed_settings is not None), None
    )


def propose(
    defect: Defect,
    found: FoundPods,
    cluster: KnownCluster,
    templates: Mapping[WorkloadName, Pod],
) -> Proposal | None:
    """Return a policy for the pods of a symptom. Return None if podsettle proposes no remedy.

    The policy is decided on as if it changed pods, together with the policies in force. `templates`
    are the pods that workloads create next, as far as their templates could be read.
    """
    remedy = proposed_remedy(defect)
    if remedy is None or not found.count:
        return None
    if not _named_namespaces(found):
        return _no_policy(remedy, found, _IN_SYSTEM_NAMESPACE)
    try:
        document = _document(remedy, found, cluster.view.policies)
        policy = parse_policy({**document, "spec": {**document["spec"], "action": "Mutate"}})
    except InvalidPolicyError as error:  # Names in a dump may be anything.
        return _no_policy(remedy, found, f"no valid policy: {error}")
    preview = _Preview(defect, remedy, policy, cluster)
    for kind in found.kinds:
        preview.add(kind, templates.get(kind.workload) or kind.pod)
    preview.add_unchanged(_UNCOMPARED, found.uncompared)
    preview.add_unchanged(_KEPT_ALIVE, found.kept_alive)
    result = preview.result(found.count)
    return Proposal(_as_yaml(document, found, result) if result.changes else "", result)


def _no_policy(remedy: str, found: FoundPods, why: str) -> Proposal:
    """Return that there is no policy, and why for the pods that are not kept alive already."""
    unchanged = Counter({why: found.count - found.kept_alive, _KEPT_ALIVE: found.kept_alive})
    preview = PolicyPreview(remedy=remedy, pods=found.count, unchanged=_pod_counts(+unchanged))
    return Proposal("", preview)


def _document(remedy: str, found: FoundPods, policies: PolicySet) -> dict[str, Any]:
    """Return the policy for a remedy."""
    proposed = REMEDIES[remedy].proposed_settings
    names = _named_namespaces(found)
    spec: dict[str, Any] = {"action": "Audit"}
    priority = _priority_below(remedy, policies)
    if priority is not None:
        spec["priority"] = priority
    spec["namespaceSelector"] = {
        "matchExpressions": [{"key": LABEL_NAMESPACE_NAME, "operator": "In", "values": names}]
    }
    if found.pod_selector:
        spec["podSelector"] = found.pod_selector
    spec["remedies"] = {remedy: proposed(found.containers) if proposed is not None else {}}
    name = f"settle-{remedy.lower()}"
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
    return document | {"metadata": {"name": _free_name(name, document, policies)}}


def _named_namespaces(found: FoundPods) -> list[str]:
    """Return the namespaces that the policy names.

    Those of the cluster itself are left out, because podsettle changes pods there only if a person
    has named the namespace.
    """
    names = sorted(name for name in found.namespaces if not is_system(name))
    return names[:_MAX_NAMESPACES]


def _priority_below(remedy: str, policies: PolicySet) -> int | None:
    """Return a priority with which no policy in force loses the remedy to the proposed one.

    Of two policies the first by priority and name sets the remedy, and the proposed one selects
    fewer containers. Return None if the default suffices, because no policy has the remedy.
    """
    priorities = [
        each.spec.priority
        for each in policies.documents
        if each.spec.action == "Mutate" and remedy in each.spec.settings()
    ]
    return max(min(priorities) - 1, _MIN_PRIORITY) if priorities else None


def _free_name(base: str, document: Mapping[str, Any], policies: PolicySet) -> str:
    """Return a name that no policy with another spec has: `kubectl create` would refuse it.

    Raises InvalidPolicyError.
    """
    specs = {each.metadata.name: each.spec for each in policies.documents}
    name, number = base, 1
    while name in specs:
        if parse_policy({**document, "metadata": {"name": name}}).spec == specs[name]:
            break
        number += 1
        name = f"{base}-{number}"
    return name


class _Preview:
    """The preview of a policy on pods, which is counted pod by pod."""

    def __init__(
        self,
        defect: Defect,
        remedy: str,
        policy: SettlePolicy,
        cluster: KnownCluster,
    ) -> None:
        self._remedies, self._remedy = frozenset(defect.remedies), remedy
        self._policy, self._name = policy, policy.metadata.name
        selector = policy.spec.namespace_selector
        self._namespaces = (
            selector.listed_values(LABEL_NAMESPACE_NAME) if selector is not None else frozenset()
        )
        policies = cluster.view.policies
        self._policies = policies.replaced([(policy, compile_policy(policy))])
        self._is_audited = len(self._policies) == len(policies)
        # The pods prove that their namespaces exist, also if these could not be read.
        self._view = dataclasses.replace(cluster.view, invents_namespaces=True)
        self._knows_classes = cluster.lists("runtimeclasses")
        self._decider = Decider(cluster.settings)
        self._changes = 0
        self._in_force: Counter[str] = Counter()
        self._unchanged: Counter[str] = Counter()

    def add(self, kind: PodKind, pod: Pod) -> None:
        """Decide on a pod, and count all pods like it."""
        request = Request(
            uid="", resource=_PODS, namespace=kind.namespace, operation="CREATE", object=pod
        )
        rendered, _ = self._decider.decide_safely(request, self._policies, self._view)
        outcomes = [
            each
            for each in rendered.decision.outcomes
            if not (kind.containers and each.container) or each.container in kind.containers
        ]
        having = [each for each in outcomes if each.remedy in self._remedies and _has(each)]
        if any(each.policy == self._name for each in having):
            self._changes += kind.count
        elif having:
            self._in_force.update({each.policy: kind.count for each in having})
        else:
            self._unchanged[self._reason(kind, pod, outcomes)] += kind.count

    def add_unchanged(self, why: str, count: int) -> None:
        """Count pods on which no decision was made."""
        if count:
            self._unchanged[why] += count

    def _reason(self, kind: PodKind, pod: Pod, outcomes: Iterable[Outcome]) -> str:
        """Return why a pod stays as it is."""
        if kind.namespace not in self._namespaces:
            return (
                _IN_SYSTEM_NAMESPACE
                if is_system(kind.namespace)
                else f"in a namespace beyond the first {_MAX_NAMESPACES}: select them by a label"
            )
        for each in outcomes:
            if each.reason is Reason.RUNTIME_CLASS_MISSING and not self._knows_classes:
                return _CLASSES_UNKNOWN
            if each.remedy == self._remedy or not each.remedy:
                return f"{each.reason}: {each.sentence}"
        if setter := self._other_setter(kind, pod):
            return f"policy {setter} sets {self._remedy} for them, but not for these containers"
        return "the policy does not select them"

    def _other_setter(self, kind: PodKind, pod: Pod) -> str:
        """Return the policy in force from which a pod gets the remedy instead. Empty if none."""
        namespace = self._view.namespace(kind.namespace)
        if namespace is None:
            return ""
        plan = self._policies.coverage_for(namespace, None).group.plan(pod.labels or {})
        setters = {step.remedy.name: step.policy.name for step in plan.mutating} if plan else {}
        setter = setters.get(self._remedy, "")
        return setter if setter != self._name else ""

    def result(self, pods: int) -> PolicyPreview:
        """Return the counts."""
        return PolicyPreview(
            remedy=self._remedy,
            pods=pods,
            changes=self._changes,
            in_force=_pod_counts(self._in_force),
            unchanged=_pod_counts(self._unchanged),
            is_audited=self._is_audited,
            warning=self._warning if self._changes else "",
        )

    @property
    def _warning(self) -> str:
        """Why changed pods would stay Pending. Empty if no node could be read."""
        nodes, classes = self._view.nodes.all, self._view.runtime_classes
        for name in self._policy.spec.runtime_classes() if nodes else ():
            clause = classes[name].no_matching_node(nodes) if name in classes else ""
            if clause:
                return f"RuntimeClass {name}: {clause}"
        return ""


def _has(outcome: Outcome) -> bool:
    """Return whether the pod has the remedy, or gets it."""
    return outcome.changed or outcome.reason is Reason.ALREADY_SETTLED


def _pod_counts(counter: Counter[str]) -> tuple[PodCount, ...]:
    """Return the counts, the largest first. The smallest ones are added up."""
    ordered = [PodCount(text, count) for text, count in counter.most_common()]
    first, rest = ordered[:_MAX_REASONS], ordered[_MAX_REASONS:]
    if rest:
        first.append(PodCount("other reasons", sum(each.pods for each in rest)))
    return tuple(first)


def _as_yaml(document: Mapping[str, Any], found: FoundPods, preview: PolicyPreview) -> str:
    """Return a policy for `kubectl create`, with comments for the person who reads it."""
    text: str = yaml.dump(
        document, Dumper=KubectlDumper, sort_keys=False, width=76, default_flow_style=None
    )
    comments = [f"# The policy {preview.phrase}."]
    if preview.warning:
        # Labels in a dump may have any text, and YAML has line breaks that `wrap` does not know.
        warning = printable(f"{preview.warning}.")
        comments += wrap(warning, 76, initial_indent="# ", subsequent_indent="# ")
    named = len(_named_namespaces(found))
    left_out = sum(not is_system(name) for name in found.namespaces) - named
    if left_out > 0:
        comments.append(
            f"# It names {named} of {named + left_out} namespaces. Select all of them by a label."
        )
    head = "".join(f"{line}\n" for line in comments)
    return head + text.replace(_AUDIT_LINE, _AUDIT_COMMENT, 1)
