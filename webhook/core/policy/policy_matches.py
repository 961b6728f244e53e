"""Why each policy does or does not act on a pod, for people.

Decisions do not use this module. It explains a plan (`PolicyGroup.plan`) and the coverage of a
namespace (`PolicySet.coverage_for`).
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from itertools import chain, islice
from typing import NamedTuple

from webhook.core.cluster.view import Namespace
from webhook.core.constants import LABEL_ENABLED, LABEL_POLICY
from webhook.core.labels import Labels
from webhook.core.policy.coverage import Coverage, PolicySet
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.plan import Plan
from webhook.core.policy.selectors import first_unmet

MAX_MATCHES = 100
"""The default number of policies that are explained, because people read the list."""


class Verdict(StrEnum):
    """What a policy does about a pod."""

    ACTS = "Acts"
    SHADOWED = "Shadowed"
    """Other policies set all of its remedies first."""
    AUDITS = "Audits"
    """Its action is Audit, so it only reports what it would do."""
    NOT_MATCHED = "NotMatched"


class PolicyMatch(NamedTuple):
    """What one policy does about a pod, and why."""

    policy: str
    verdict: Verdict
    acting: tuple[str, ...] = ()
    """The remedies that the pod gets from the policy, or would get under `action: Audit`."""
    shadowed: tuple[tuple[str, str], ...] = ()
    """The remedies that another policy sets first, each with the name of that policy."""
    why: str = ""
    """Why the policy does not cover the pod: the first requirement that is not met."""


def match_policies(
    policies: PolicySet,
    namespace: Namespace,
    labels: Labels,
    own_namespace: str | None,
    limit: int = MAX_MATCHES,
) -> tuple[PolicyMatch, ...]:
    """Return what each policy does about a pod with these labels, at most `limit` policies.

    Policies that cover the pod come first. Both parts are in the order in which policies win.
    `own_namespace` is podsettle's own namespace. Callers whose labels come from clients pass a
    PolicySet with its own caches.
    """
    coverage = policies.coverage_for(namespace, own_namespace)
    plan = coverage.group.plan(labels)
    covering = frozenset(plan.policies if plan else ())
    in_namespace = frozenset(each.name for each in coverage.policies)
    # Two passes over the policies, because a sort of 1,000 policies for each pod takes 1 ms.
    ordered = chain(
        (each for each in policies.by_precedence if each.metadata.name in covering),
        (each for each in policies.by_precedence if each.metadata.name not in covering),
    )
    return tuple(
        _covering_match(policy, plan)
        if plan and policy.metadata.name in covering
        else PolicyMatch(
            policy.metadata.name,
            Verdict.NOT_MATCHED,
            why=_why_not(policy, coverage, in_namespace, namespace, labels, own_namespace),
        )
        for policy in islice(ordered, limit)
    )


def _covering_match(policy: SettlePolicy, plan: Plan) -> PolicyMatch:
    """Return what a policy that covers the pod does."""
    name, audits = policy.metadata.name, policy.spec.action == "Audit"
    steps = plan.audited if audits else plan.mutating
    setter = {step.remedy.name: step.policy.name for step in steps}
    remedies = policy.spec.settings()
    acting = tuple(remedy for remedy in remedies if setter[remedy] == name)
    shadowed = tuple((remedy, setter[remedy]) for remedy in remedies if setter[remedy] != name)
    verdict = Verdict.AUDITS if audits else Verdict.ACTS
    return PolicyMatch(name, verdict if acting else Verdict.SHADOWED, acting, shadowed)


def _why_not(
    policy: SettlePolicy,
    coverage: Coverage,
    in_namespace: Collection[str],
    namespace: Namespace,
    labels: Labels,
    own_namespace: str | None,
) -> str:
    """Return why a policy does not cover the pod, in a clause.

    `in_namespace` are the names of the policies that cover the namespace.
    """
    if coverage.disabled:
        return f'the namespace is labelled {LABEL_ENABLED}: "false"'
    if namespace.name == own_namespace:
        return "the namespace is podsettle's own"
    name, selector = policy.metadata.name, policy.spec.namespace_selector
    if name not in in_namespace:
        if selector is None:
            if namespace.labels.get(LABEL_POLICY) != name:
                return f"the namespace has no label {LABEL_POLICY}={name}"
        elif unmet := first_unmet(selector, namespace.labels):
            return f"the namespace {unmet}"
        return "the namespace belongs to the cluster, and namespaceSelector does not name it"
    return f"the pod {first_unmet(policy.spec.pod_selector, labels)}"
