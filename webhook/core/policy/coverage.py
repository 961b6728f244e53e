"""The policies in force, compiled once per change, and which of them cover which namespace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass

from webhook.core.cluster.view import Namespace
from webhook.core.constants import (
    LABEL_ENABLED,
    LABEL_POLICY,
    SYSTEM_NAMESPACES,
)
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.plan import CompiledPolicy, PlanCache, PolicyGroup, compile_policy
from webhook.core.policy.selector_index import SelectorIndex, compile_for_index

_MAX_NAMESPACE_NAME_CHARACTERS = 63
"""A name in a request may be no namespace at all."""

MAX_COVERAGE_CACHE_BYTES = 16 * 1024 * 1024
"""Of namespaces whose coverage is kept: their names and labels, for 20,000 of a usual size.
Namespaces come and go, and tenants who may make them choose their labels."""
_NAMESPACE_OVERHEAD_BYTES = 400
_LABEL_OVERHEAD_BYTES = 120
"""What a namespace and a label take beside their texts."""
MAX_GROUPED_POLICIES = 20_000
"""Policies in all groups that are kept; each takes some 200 bytes in each group."""

_NO_POLICIES = PolicyGroup()


@dataclass(frozen=True, slots=True)
class Coverage:
    """What covers a namespace, and what a person should know about it."""

    group: PolicyGroup = _NO_POLICIES
    protected: bool = False
    disabled: bool = False
    missing_policy: str = ""

    @property
    def policies(self) -> tuple[CompiledPolicy, ...]:
        """The policies that cover the namespace."""
        return self.group.policies


class PolicySet:
    """Policies by priority, then name. Immutable; a change makes a new one."""

    def __init__(self, documents: Iterable[SettlePolicy] = ()) -> None:
        self.documents = tuple(documents)
        """What the policies were compiled from."""
        compiled = sorted(
            (compile_policy(document) for document in self.documents),
            key=lambda policy: (-policy.priority, policy.name),
        )
        self._policies = tuple(compiled)
        self._rank = {policy.name: rank for rank, policy in enumerate(compiled)}
        self._namespace_selectors = SelectorIndex(
            (rank, compile_for_index(policy.namespace_selector))
            for rank, policy in enumerate(compiled)
        )
        self._clear_caches()

    def __len__(self) -> int:
        return len(self._policies)

    def _clear_caches(self) -> None:
        # Selectors are asked once per namespace and change of its labels, not once per pod.
        self._coverage_cache: dict[str, tuple[Mapping[str, str], Coverage, int]] = {}
        self._coverage_cache_bytes = 0
        # Thousands of namespaces are covered by a few dozen sets of policies.
        self._groups: dict[tuple[int, ...], PolicyGroup] = {(): _NO_POLICIES}
        self._grouped_policies = 0
        self._plan_cache = PlanCache(self._policies)

    def with_own_caches(self) -> PolicySet:
        """The same policies, for callers whose questions must not displace what others asked."""
        made = copy(self)
        made._clear_caches()
        return made

    def coverage_for(self, namespace: Namespace, own_namespace: str | None) -> Coverage:
        """The policies for a namespace; none for one that is protected or switched off."""
        known = self._coverage_cache.get(namespace.name)
        if known is not None:
            labels, coverage, _ = known
            # Mostly the very same; comparing them would take longer than all the rest.
            if labels is namespace.labels or labels == namespace.labels:
                return coverage
        coverage = self._compute_coverage(namespace, own_namespace)
        if len(namespace.name) <= _MAX_NAMESPACE_NAME_CHARACTERS:
            self._cache_coverage(namespace, coverage)
        return coverage

    def _cache_coverage(self, namespace: Namespace, coverage: Coverage) -> None:
        """Remember what covers a namespace, within the bound."""
        *_, before = self._coverage_cache.pop(namespace.name, (0,))
        self._coverage_cache_bytes -= before
        size = _NAMESPACE_OVERHEAD_BYTES + sum(
            _LABEL_OVERHEAD_BYTES + len(key) + len(value) for key, value in namespace.labels.items()
        )
        if size > MAX_COVERAGE_CACHE_BYTES:
            return
        if self._coverage_cache_bytes + size > MAX_COVERAGE_CACHE_BYTES:
            self._coverage_cache.clear()
            self._coverage_cache_bytes = 0
        self._coverage_cache[namespace.name] = (namespace.labels, coverage, size)
        self._coverage_cache_bytes += size

    def _group_of(self, ranks: tuple[int, ...]) -> PolicyGroup:
        """The policies of these ranks together."""
        group = self._groups.get(ranks)
        if group is None:
            if self._grouped_policies + len(ranks) > MAX_GROUPED_POLICIES:
                # With what covers namespaces, which holds groups.
                self._clear_caches()
            group = PolicyGroup(
                tuple(self._policies[rank] for rank in ranks), ranks, self._plan_cache
            )
            self._groups[ranks] = group
            self._grouped_policies += len(ranks)
        return group

    def _compute_coverage(self, namespace: Namespace, own_namespace: str | None) -> Coverage:
        name, labels = namespace.name, namespace.labels
        if labels.get(LABEL_ENABLED) == "false":
            return Coverage(disabled=True)
        if name == own_namespace:
            return Coverage(protected=True)
        protected = name.startswith(SYSTEM_NAMESPACES)
        ranks = self._namespace_selectors.matching(labels)
        if protected:
            ranks = tuple(rank for rank in ranks if name in self._policies[rank].named_namespaces)
        chosen = labels.get(LABEL_POLICY)
        missing = chosen if chosen and chosen not in self._rank else ""
        if chosen in self._rank and not protected:
            ranks = tuple(sorted({*ranks, self._rank[chosen]}))
        return Coverage(self._group_of(ranks), protected and not ranks, missing_policy=missing)
