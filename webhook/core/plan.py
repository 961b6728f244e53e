"""Which policies cover a pod, and what they want together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from webhook.core.image_config import LookupRules
from webhook.core.label_index import LabelIndex
from webhook.core.names import LABEL_NAMESPACE_NAME
from webhook.core.policy import REMEDIES, SettlePolicy
from webhook.core.remedies.post_init_sleep import PostInitSleep
from webhook.core.remedy import Remedy
from webhook.core.selectors import Labels, LabelSelector

_MOST_PLANS = 1_000

_numbers = count()


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """One policy, ready to be asked."""

    name: str
    priority: int
    audit: bool
    namespace_selector: LabelSelector | None
    """None: only namespaces that name the policy."""
    named_namespaces: frozenset[str]
    pod_selector: LabelSelector
    remedies: tuple[tuple[str, Remedy, Any], ...]
    """Name, function and settings."""
    image_rules: LookupRules | None
    """Where images may be looked up; None: nowhere."""


def compile_policy(document: SettlePolicy) -> Policy:
    """A policy as it is asked for each pod, from its document."""
    spec = document.spec
    selector = spec.namespace_selector
    return Policy(
        name=document.metadata.name,
        priority=spec.priority,
        audit=spec.action == "Audit",
        namespace_selector=selector,
        named_namespaces=selector.names(LABEL_NAMESPACE_NAME) if selector else frozenset(),
        pod_selector=spec.pod_selector,
        remedies=tuple(
            (name, REMEDIES[name], settings) for name, settings in spec.settings().items()
        ),
        image_rules=spec.image_config.rules,
    )


class Step(NamedTuple):
    """One remedy, as one policy wants it."""

    remedy: str
    policy: Policy
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


class Group:
    """Policies that cover a namespace together, by priority, then name. Immutable."""

    def __init__(self, policies: tuple[Policy, ...] = ()) -> None:
        self.policies = policies
        self._by_labels = LabelIndex(policy.pod_selector for policy in policies)
        # A few dozen kinds of pods, not one plan per pod.
        self._plans: dict[tuple[int, ...], Plan] = {}

    def plan(self, labels: Labels) -> Plan | None:
        """What is to be done to a pod with these labels; None where no policy covers it."""
        covering = self._by_labels.matching(labels)
        if not covering:
            return None
        plan = self._plans.get(covering)
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[covering] = _plan([self.policies[rank] for rank in covering])
        return plan


def _plan(policies: list[Policy]) -> Plan:
    mutating = _steps(policy for policy in policies if not policy.audit)
    audited = _steps(policy for policy in policies if policy.audit)
    return Plan(
        next(_numbers),
        tuple(policy.name for policy in policies),
        mutating,
        audited,
        any(_wraps_containers(step.settings) for step in (*mutating, *audited)),
    )


def _wraps_containers(settings: Any) -> bool:
    return isinstance(settings, PostInitSleep) and bool(settings.containers)


def _steps(policies: Iterable[Policy]) -> tuple[Step, ...]:
    first: dict[str, Step] = {}
    for policy in policies:
        for name, remedy, settings in policy.remedies:
            first.setdefault(name, Step(name, policy, remedy, settings))
    return tuple(first[name] for name in REMEDIES if name in first)
