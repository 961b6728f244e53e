"""Plans: the remedies for a pod, from all policies that cover the pod."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from webhook.core.images import LookupRules
from webhook.core.labels import Labels, Matcher
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.selectors import DecisiveLabels, compile_selector
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.base import Remedy

MAX_PLANS = 4096
"""The maximum number of cached plans of a policy set. A plan takes less than a kilobyte."""


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPolicy:
    """A policy in the form that decisions read."""

    document: SettlePolicy
    name: str
    audit: bool
    selects_namespace: Matcher
    named_namespaces: frozenset[str]
    selects_pod: Matcher
    remedies: tuple[tuple[Remedy[Any], Any, str], ...]
    """Each remedy with its settings and `Remedy.effect`."""
    image_rules: LookupRules | None
    """The registries that may be asked about images. None: no registry."""


def compile_policy(document: SettlePolicy) -> CompiledPolicy:
    """Return a policy in the form that decisions read."""
    spec = document.spec
    selector = spec.namespace_selector
    given = [(REMEDIES[name], settings) for name, settings in spec.settings().items()]
    return CompiledPolicy(
        document=document,
        name=document.metadata.name,
        audit=spec.action == "Audit",
        selects_namespace=compile_selector(selector) if selector else lambda _labels: False,
        named_namespaces=spec.named_namespaces,
        selects_pod=compile_selector(spec.pod_selector),
        remedies=tuple((remedy, settings, remedy.effect(settings)) for remedy, settings in given),
        image_rules=spec.image_config.rules,
    )


class Step(NamedTuple):
    """One remedy with the settings of one policy."""

    remedy: Remedy[Any]
    policy: CompiledPolicy
    settings: Any
    effect: str
    """What the remedy does with these settings (`Remedy.effect`)."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The remedies for a pod. Each comes once, from the first policy that sets it.

    A plan is equal only to itself, so a cache key can contain it.
    """

    policies: tuple[str, ...]
    """The names of the policies that cover the pod."""
    mutating: tuple[Step, ...]
    audited: tuple[Step, ...]
    """The steps of policies with `action: Audit`. They are separate from `mutating`, so a policy
    that audits never replaces a policy that mutates."""
    settable_fields: frozenset[str]
    """The fields of the spec that the mutating remedies may set."""


class PolicyGroup:
    """The policies that cover a namespace, by priority, then name."""

    def __init__(
        self,
        policies: tuple[CompiledPolicy, ...] = (),
        plans: dict[tuple[object, ...], Plan | None] | None = None,
    ) -> None:
        """`plans` is the cache of plans that the groups of a policy set share."""
        self.policies = policies
        self._decisive = DecisiveLabels(policy.document.spec.pod_selector for policy in policies)
        self._plans = {} if plans is None else plans
        self._own_key = object()  # Not the group itself, which would be a reference cycle.

    def plan(self, labels: Labels) -> Plan | None:
        """Return the plan for a pod with these labels. Return None if no policy covers it."""
        key = (self._own_key, *self._decisive.of(labels))
        try:
            return self._plans[key]
        except KeyError:
            pass
        # Tenants choose the labels of pods.
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        covering = [policy for policy in self.policies if policy.selects_pod(labels)]
        self._plans[key] = plan = _make_plan(covering) if covering else None
        return plan


def _make_plan(policies: list[CompiledPolicy]) -> Plan:
    mutating = _steps(policy for policy in policies if not policy.audit)
    audited = _steps(policy for policy in policies if policy.audit)
    return Plan(
        tuple(policy.name for policy in policies),
        mutating,
        audited,
        frozenset().union(*(step.remedy.fields for step in mutating)),
    )


def _steps(policies: Iterable[CompiledPolicy]) -> tuple[Step, ...]:
    """Return a step for each remedy, from the first policy that sets the remedy."""
    first: dict[str, Step] = {}
    for policy in policies:
        for remedy, settings, effect in policy.remedies:
            first.setdefault(remedy.name, Step(remedy, policy, settings, effect))
    return tuple(first[name] for name in REMEDIES if name in first)
