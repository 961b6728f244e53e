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
from webhook.core.policy.plan import CompiledPolicy, Plan, PolicyGroup, compile_policy
from webhook.core.policy.selectors import DecisiveLabels

_MAX_NAMESPACE_NAME_CHARACTERS = 63
"""The longest valid name of a namespace (RFC 1123). The coverage of longer names is not cached,
because a request may carry any name."""

# Tenants may create namespaces and choose their labels.
MAX_COVERAGES = 16_384
"""The maximum number of cached coverages. One takes about 300 bytes in addition to its group."""
_MAX_GROUPED_POLICIES = 20_000
"""The maximum number of policies in all cached groups together. A policy takes up to 300 bytes in
each group, so the groups take up to 6 MB."""

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


_DISABLED, _PROTECTED = Coverage(disabled=True), Coverage(protected=True)


class PolicySet:
    """All policies in force, by priority, then name. Immutable."""

    def __init__(self, documents: Iterable[SettlePolicy] = ()) -> None:
        self._set_documents(documents, {})

    def _set_documents(
        self, documents: Iterable[SettlePolicy], compiled: Mapping[int, CompiledPolicy]
    ) -> None:
        """Compile the documents that are not in `compiled`, by their identities."""
        self.documents = tuple(documents)
        """The policies as they were parsed."""
        self.by_precedence = tuple(sorted(self.documents, key=lambda each: each.precedence))
        """The same policies. Earlier ones win."""
        self._policies = tuple(
            compiled.get(id(each)) or compile_policy(each) for each in self.by_precedence
        )
        self._names = {policy.name for policy in self._policies}
        self._decisive = DecisiveLabels(each.spec.namespace_selector for each in self.documents)
        self._clear_caches()

    def __len__(self) -> int:
        return len(self._policies)

    def _clear_caches(self) -> None:
        # Selectors are evaluated once for each set of labels that they distinguish, not for each
        # pod. Thousands of namespaces share a few dozen groups of policies.
        self._coverages: dict[tuple[object, ...], Coverage] = {}
        self._groups: dict[tuple[CompiledPolicy, ...], PolicyGroup] = {(): _NO_POLICIES}
        self._grouped_policy_count = 0
        self._plans: dict[tuple[object, ...], Plan | None] = {}

    def replaced(self, documents: Iterable[SettlePolicy]) -> PolicySet:
        """Return a set in which some policies are replaced, by name, or added."""
        by_name = {each.metadata.name: each for each in (*self.documents, *documents)}
        return self.of(by_name.values())

    def of(self, documents: Iterable[SettlePolicy]) -> PolicySet:
        """Return a set of these policies with caches of its own.

        Those that are in this set too are not compiled again, which takes 40 ms for 1,000 policies.
        """
        policy_set = copy(self)
        policy_set._set_documents(documents, {id(each.document): each for each in self._policies})
        return policy_set

    def coverage_for(self, namespace: Namespace, own_namespace: str | None) -> Coverage:
        """Return the policies that cover a namespace.

        No policy covers a namespace that is protected or disabled by label. `own_namespace` is
        podsettle's own namespace, which is protected.
        """
        name, labels = namespace.name, namespace.labels
        if labels.get(LABEL_ENABLED) == "false":
            return _DISABLED
        if name == own_namespace:
            return _PROTECTED
        protected = name if name.startswith(SYSTEM_NAMESPACE_PREFIXES) else ""
        chosen = labels.get(LABEL_POLICY, "")
        key = (protected, chosen, *self._decisive.of(labels))
        coverage = self._coverages.get(key)
        if coverage is None:
            coverage = self._compute_coverage(namespace, chosen, bool(protected))
            if len(self._coverages) >= MAX_COVERAGES:
                self._clear_caches()
            if len(protected) <= _MAX_NAMESPACE_NAME_CHARACTERS:
                self._coverages[key] = coverage
        return coverage

    def _compute_coverage(self, namespace: Namespace, chosen: str, protected: bool) -> Coverage:
        """Return the coverage of a namespace that names the policy `chosen`, without the cache."""
        covering = tuple(
            policy
            for policy in self._policies
            if (policy.name == chosen and not protected)
            or (
                (not protected or namespace.name in policy.named_namespaces)
                and policy.selects_namespace(namespace.labels)
            )
        )
        missing = chosen if chosen not in self._names else ""
        return Coverage(
            self._group_of(covering), protected and not covering, missing_policy=missing
        )

    def _group_of(self, policies: tuple[CompiledPolicy, ...]) -> PolicyGroup:
        """Return the group of these policies."""
        group = self._groups.get(policies)
        if group is None:
            if self._grouped_policy_count + len(policies) > _MAX_GROUPED_POLICIES:
                # Clears the coverages too, because they refer to the groups.
                self._clear_caches()
            group = self._groups[policies] = PolicyGroup(policies, self._plans)
            self._grouped_policy_count += len(policies)
        return group
