"""The set of policies in force, and which of them cover a namespace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass

from webhook.core.cluster.view import Namespace
from webhook.core.constants import (
    LABEL_ENABLED,
    LABEL_POLICY,
    SYSTEM_NAMESPACE_PREFIXES,
)
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.plan import CompiledPolicy, PlanCache, PolicyGroup, compile_policy
from webhook.core.policy.selector_index import SelectorIndex

_MAX_NAMESPACE_NAME_CHARACTERS = 63
"""The longest valid name of a namespace (RFC 1123). The coverage of longer names is not cached,
because a request may carry any name."""

MAX_COVERAGE_CACHE_BYTES = 16 * 1024 * 1024
"""The maximum size of the cache of coverage by namespace: 20,000 namespaces of a usual size.

The cache is bounded because tenants may create namespaces and choose their labels."""
_NAMESPACE_OVERHEAD_BYTES = 400
"""The estimated memory that a namespace takes in addition to its labels."""
_LABEL_OVERHEAD_BYTES = 120
"""The estimated memory that a label takes in addition to its texts."""
MAX_GROUPED_POLICIES = 20_000
"""The maximum number of policies in all cached groups together. A policy takes about 200 bytes in
each group, so the groups take up to 4 MB."""

_NO_POLICIES = PolicyGroup()


@dataclass(frozen=True, slots=True)
class Coverage:
    """The policies that cover a namespace, or the reason why no policy does."""

    group: PolicyGroup = _NO_POLICIES
    protected: bool = False
    disabled: bool = False
    missing_policy: str = ""

    @property
    def policies(self) -> tuple[CompiledPolicy, ...]:
        """The policies that cover the namespace."""
        return self.group.policies


class PolicySet:
    """All policies in force, by priority, then name. Immutable."""

    def __init__(
        self,
        documents: Iterable[SettlePolicy] = (),
        *,
        max_coverage_cache_bytes: int = MAX_COVERAGE_CACHE_BYTES,
    ) -> None:
        self._max_coverage_cache_bytes = max_coverage_cache_bytes
        self._set_policies((document, compile_policy(document)) for document in documents)

    def _set_policies(self, policies: Iterable[tuple[SettlePolicy, CompiledPolicy]]) -> None:
        self._pairs = tuple(policies)
        ordered = sorted(self._pairs, key=lambda pair: (-pair[1].priority, pair[1].name))
        self.documents = tuple(document for document, _ in self._pairs)
        """The policies as they were parsed."""
        self.by_precedence = tuple(document for document, _ in ordered)
        """The same policies. Earlier ones win."""
        self._policies = tuple(policy for _, policy in ordered)
        self._rank = {policy.name: rank for rank, policy in enumerate(self._policies)}
        self._namespace_selectors = SelectorIndex(
            (rank, policy.indexed_namespace_selector) for rank, policy in enumerate(self._policies)
        )
        self._clear_caches()

    def __len__(self) -> int:
        return len(self._policies)

    def _clear_caches(self) -> None:
        # Namespace selectors are evaluated once per namespace and set of labels, not once per pod.
        self._coverage_cache: dict[str, tuple[Mapping[str, str], Coverage, int]] = {}
        self._coverage_cache_bytes = 0
        # Thousands of namespaces share a few dozen sets of policies.
        self._groups: dict[tuple[int, ...], PolicyGroup] = {(): _NO_POLICIES}
        self._grouped_policy_count = 0
        self._plan_cache = PlanCache(self._policies)

    def with_own_caches(self) -> PolicySet:
        """Return the same policies with empty caches.

        It is for callers whose queries must not evict the entries of other callers.
        """
        policy_set = copy(self)
        policy_set._clear_caches()
        return policy_set

    def replaced(self, policies: Iterable[tuple[SettlePolicy, CompiledPolicy]]) -> PolicySet:
        """Return a set in which some policies are replaced, by name, or added.

        The caller compiles these policies (`compile_policy`). The others are not compiled again,
        which takes 10 ms for 1,000 policies.
        """
        by_name = {pair[0].metadata.name: pair for pair in self._pairs}
        by_name |= {pair[0].metadata.name: pair for pair in policies}
        policy_set = copy(self)
        policy_set._set_policies(by_name.values())
        return policy_set

    def coverage_for(self, namespace: Namespace, own_namespace: str | None) -> Coverage:
        """Return the policies that cover a namespace.

        No policy covers a namespace that is protected or disabled by label. `own_namespace` is
        podsettle's own namespace, which is protected.
        """
        cached = self._coverage_cache.get(namespace.name)
        if cached is not None:
            labels, coverage, _ = cached
            # The identity check comes first, because a comparison of two mappings is slow.
            if labels is namespace.labels or labels == namespace.labels:
                return coverage
        coverage = self._compute_coverage(namespace, own_namespace)
        if len(namespace.name) <= _MAX_NAMESPACE_NAME_CHARACTERS:
            self._cache_coverage(namespace, coverage)
        return coverage

    def _cache_coverage(self, namespace: Namespace, coverage: Coverage) -> None:
        """Store the coverage of a namespace, and clear the cache if it is full."""
        *_, old_size = self._coverage_cache.pop(namespace.name, (0,))
        self._coverage_cache_bytes -= old_size
        size = _NAMESPACE_OVERHEAD_BYTES + sum(
            _LABEL_OVERHEAD_BYTES + len(key) + len(value) for key, value in namespace.labels.items()
        )
        if size > self._max_coverage_cache_bytes:
            return
        if self._coverage_cache_bytes + size > self._max_coverage_cache_bytes:
            self._coverage_cache.clear()
            self._coverage_cache_bytes = 0
        self._coverage_cache[namespace.name] = (namespace.labels, coverage, size)
        self._coverage_cache_bytes += size

    def _group_of(self, ranks: tuple[int, ...]) -> PolicyGroup:
        """Return the group of the policies with these ranks."""
        group = self._groups.get(ranks)
        if group is None:
            if self._grouped_policy_count + len(ranks) > MAX_GROUPED_POLICIES:
                # Clears the coverage cache too, because its entries refer to the groups.
                self._clear_caches()
            group = PolicyGroup(
                tuple(self._policies[rank] for rank in ranks), ranks, self._plan_cache
            )
            self._groups[ranks] = group
            self._grouped_policy_count += len(ranks)
        return group

    def _compute_coverage(self, namespace: Namespace, own_namespace: str | None) -> Coverage:
        """Return the coverage of a namespace without the cache."""
        name, labels = namespace.name, namespace.labels
        if labels.get(LABEL_ENABLED) == "false":
            return Coverage(disabled=True)
        if name == own_namespace:
            return Coverage(protected=True)
        protected = name.startswith(SYSTEM_NAMESPACE_PREFIXES)
        ranks = self._namespace_selectors.matching(labels)
        if protected:
            ranks = tuple(rank for rank in ranks if name in self._policies[rank].named_namespaces)
        chosen = labels.get(LABEL_POLICY)
        missing = chosen if chosen and chosen not in self._rank else ""
        if chosen in self._rank and not protected:
            ranks = tuple(sorted({*ranks, self._rank[chosen]}))
        return Coverage(self._group_of(ranks), protected and not ranks, missing_policy=missing)
