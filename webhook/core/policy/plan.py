"""Which policies cover a pod, and what they want together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from webhook.core.constants import LABEL_NAMESPACE_NAME
from webhook.core.images import LookupRules
from webhook.core.labels import Labels
from webhook.core.policy.model import REMEDIES, SettlePolicy
from webhook.core.policy.selector_index import CompiledSelector, SelectorIndex, compile_for_index
from webhook.core.policy.selectors import LabelSelector
from webhook.core.remedies.base import Remedy
from webhook.core.remedies.post_init_sleep import PostInitSleep

_PLAN_OVERHEAD_WEIGHT = 64
MAX_PLAN_CACHE_WEIGHT = 64 * 1024
"""Of the plans that are kept: each weighs 64 and one for each policy, in units of some 16 bytes, so
that a thousand plans of 60 policies take a megabyte or two."""

_plan_numbers = count()


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPolicy:
    """One policy, ready to be asked."""

    name: str
    priority: int
    audit: bool
    namespace_selector: LabelSelector | None
    """None: only namespaces that name the policy."""
    named_namespaces: frozenset[str]
    indexed_pod_selector: CompiledSelector | None
    remedies: tuple[tuple[str, Remedy, Any], ...]
    """Name, function and settings."""
    image_rules: LookupRules | None
    """Where images may be looked up; None: nowhere."""


def compile_policy(document: SettlePolicy) -> CompiledPolicy:
    """A policy as it is asked for each pod, from its document."""
    spec = document.spec
    selector = spec.namespace_selector
    return CompiledPolicy(
        name=document.metadata.name,
        priority=spec.priority,
        audit=spec.action == "Audit",
        namespace_selector=selector,
        named_namespaces=selector.names(LABEL_NAMESPACE_NAME) if selector else frozenset(),
        indexed_pod_selector=compile_for_index(spec.pod_selector),
        remedies=tuple(
            (name, REMEDIES[name], settings) for name, settings in spec.settings().items()
        ),
        image_rules=spec.image_config.rules,
    )


class Step(NamedTuple):
    """One remedy, as one policy wants it."""

    remedy: str
    policy: CompiledPolicy
    apply: Remedy
    settings: Any


class Plan(NamedTuple):
    """What is to be done to a pod: each remedy once, by the first policy that sets it."""

    number: int
    """No two plans have the same."""
    policies: tuple[str, ...]
    """The names of those that cover the pod."""
    mutating: tuple[Step, ...]
    audited: tuple[Step, ...]
    """An audit never stands in the way of a policy that mutates."""
    wraps_containers: bool
    """Whether it may wrap regular containers, not only init containers."""


class PlanCache:
    """The plans that were made, by the policies that cover a pod together. Bounded.

    Labels of pods and namespaces, which tenants choose, decide on which policies these are.
    """

    def __init__(self, policies: tuple[CompiledPolicy, ...] = ()) -> None:
        """Policies go by their ranks in all that there are."""
        self._policies = policies
        self._plans: dict[tuple[int, ...], Plan] = {}
        self._weight = 0

    def plan_for(self, ranks: tuple[int, ...]) -> Plan:
        """The plan of some policies."""
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
    """Policies that cover a namespace together, by priority, then name. Immutable."""

    def __init__(
        self,
        policies: tuple[CompiledPolicy, ...] = (),
        ranks: tuple[int, ...] = (),
        plans: PlanCache | None = None,
    ) -> None:
        """`ranks` are those of the policies in all that there are, as `plans` knows them."""
        self.policies = policies
        self._pod_selectors = SelectorIndex(
            (rank, policy.indexed_pod_selector)
            for rank, policy in zip(ranks, policies, strict=True)
        )
        self._plans = plans or PlanCache()

    def plan(self, labels: Labels) -> Plan | None:
        """What is to be done to a pod with these labels; None where no policy covers it."""
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
        any(_wraps_containers(step.settings) for step in (*mutating, *audited)),
    )


def _wraps_containers(settings: Any) -> bool:
    return isinstance(settings, PostInitSleep) and bool(settings.containers)


def _steps(policies: Iterable[CompiledPolicy]) -> tuple[Step, ...]:
    first: dict[str, Step] = {}
    for policy in policies:
        for name, remedy, settings in policy.remedies:
            first.setdefault(name, Step(name, policy, remedy, settings))
    return tuple(first[name] for name in REMEDIES if name in first)
