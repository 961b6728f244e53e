"""Plans: the remedies for a pod, from all policies that cover the pod."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from webhook.core.constants import LABEL_NAMESPACE_NAME
from webhook.core.images import LookupRules
from webhook.core.labels import Labels
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.selector_index import CompiledSelector, SelectorIndex, compile_for_index
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.base import Remedy

_PLAN_OVERHEAD_WEIGHT = 64
MAX_PLAN_CACHE_WEIGHT = 64 * 1024
"""The maximum size of the plan cache, in units of about 16 bytes: 1 to 2 MB.

A plan weighs 64, and 1 for each of its policies. So the cache holds 500 plans of 60 policies."""

_plan_numbers = count()


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPolicy:
    """A policy in the form that decisions read."""

    name: str
    priority: int
    audit: bool
    indexed_namespace_selector: CompiledSelector | None
    """None: the policy covers only namespaces that name it by label."""
    named_namespaces: frozenset[str]
    indexed_pod_selector: CompiledSelector | None
    remedies: tuple[tuple[Remedy[Any], Any], ...]
    """Each remedy with its settings."""
    image_rules: LookupRules | None
    """The registries that may be asked about images. None: no registry."""


def compile_policy(document: SettlePolicy) -> CompiledPolicy:
    """Return a policy in the form that decisions read."""
    spec = document.spec
    selector = spec.namespace_selector
    return CompiledPolicy(
        name=document.metadata.name,
        priority=spec.priority,
        audit=spec.action == "Audit",
        indexed_namespace_selector=compile_for_index(selector),
        named_namespaces=selector.listed_values(LABEL_NAMESPACE_NAME) if selector else frozenset(),
        indexed_pod_selector=compile_for_index(spec.pod_selector),
        remedies=tuple((REMEDIES[name], settings) for name, settings in spec.settings().items()),
        image_rules=spec.image_config.rules,
    )


class Step(NamedTuple):
    """One remedy with the settings of one policy."""

    remedy: Remedy[Any]
    policy: CompiledPolicy
    settings: Any
    effect: str
    """What the remedy does with these settings (`Remedy.effect`)."""


class Plan(NamedTuple):
    """The remedies for a pod. Each comes once, from the first policy that sets it."""

    number: int
    """A number that no other plan has."""
    policies: tuple[str, ...]
    """The names of the policies that cover the pod."""
    mutating: tuple[Step, ...]
    audited: tuple[Step, ...]
    """The steps of policies with `action: Audit`. They are separate from `mutating`, so a policy
    that audits never replaces a policy that mutates."""
    settable_fields: frozenset[str]
    """The fields of the spec that the mutating remedies may set."""


class PlanCache:
    """A cache of plans. The key is the set of policies that cover a pod.

    The cache is bounded because tenants choose the labels of pods and namespaces. With these labels
    they can cause many sets of policies.
    """

    def __init__(self, policies: tuple[CompiledPolicy, ...] = ()) -> None:
        """`policies` are all policies. The index of a policy is its rank."""
        self._policies = policies
        self._plans: dict[tuple[int, ...], Plan] = {}
        self._weight = 0

    def plan_for(self, ranks: tuple[int, ...]) -> Plan:
        """Return the plan of the policies with these ranks."""
        plan = self._plans.get(ranks)
        if plan is None:
            plan = _make_plan([self._policies[rank] for rank in ranks])
            weight = _PLAN_OVERHEAD_WEIGHT + len(ranks)
            if self._weight + weight > MAX_PLAN_CACHE_WEIGHT:
                self._plans.clear()
                self._weight = 0
            self._plans[ranks] = plan
            self._weight += weight
        return plan


class PolicyGroup:
    """The policies that cover a namespace, by priority, then name. Immutable."""

    def __init__(
        self,
        policies: tuple[CompiledPolicy, ...] = (),
        ranks: tuple[int, ...] = (),
        plans: PlanCache | None = None,
    ) -> None:
        """`ranks` holds the rank of each policy: its index among all policies (see PlanCache)."""
        self.policies = policies
        self._pod_selectors = SelectorIndex(
            (rank, policy.indexed_pod_selector)
            for rank, policy in zip(ranks, policies, strict=True)
        )
        self._plans = plans or PlanCache()

    def plan(self, labels: Labels) -> Plan | None:
        """Return the plan for a pod with these labels. Return None if no policy covers it."""
        covering = self._pod_selectors.matching(labels)
        return self._plans.plan_for(covering) if covering else None


def _make_plan(policies: list[CompiledPolicy]) -> Plan:
    mutating = _steps(policy for policy in policies if not policy.audit)
    audited = _steps(policy for policy in policies if policy.audit)
    return Plan(
        next(_plan_numbers),
        tuple(policy.name for policy in policies),
        mutating,
        audited,
        frozenset().union(*(step.remedy.fields for step in mutating)),
    )


def _steps(policies: Iterable[CompiledPolicy]) -> tuple[Step, ...]:
    """Return a step for each remedy, from the first policy that sets the remedy."""
    first: dict[str, Step] = {}
    for policy in policies:
        for remedy, settings in policy.remedies:
            if remedy.name not in first:
                step = Step(remedy, policy, settings, remedy.effect(settings))
                first[remedy.name] = step
    return tuple(first[name] for name in REMEDIES if name in first)
