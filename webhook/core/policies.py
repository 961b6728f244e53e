"""The policies in force, compiled once per change, and which of them cover which namespace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from webhook.core.label_index import LabelIndex
from webhook.core.names import (
    LABEL_ENABLED,
    LABEL_POLICY,
    SYSTEM_NAMESPACES,
)
from webhook.core.plan import Group, Policy, compile_policy
from webhook.core.policy import SettlePolicy
from webhook.core.view import Namespace

_MOST_REMEMBERED = 20_000
"""Namespaces come and go."""
_LONGEST_NAME = 63
"""A name in a request may be no namespace at all."""


_NO_POLICIES = Group()


@dataclass(frozen=True, slots=True)
class Coverage:
    """What covers a namespace, and what a person should know about it."""

    group: Group = _NO_POLICIES
    protected: bool = False
    disabled: bool = False
    missing_policy: str = ""

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The policies that cover the namespace."""
        return self.group.policies


class PolicySet:
    """Policies by priority, then name. Immutable; a change makes a new one."""

    def __init__(self, documents: Iterable[SettlePolicy] = ()) -> None:
        compiled = sorted(
            (compile_policy(document) for document in documents),
            key=lambda policy: (-policy.priority, policy.name),
        )
        self._policies = tuple(compiled)
        self._rank = {policy.name: rank for rank, policy in enumerate(compiled)}
        self._by_labels = LabelIndex(policy.namespace_selector for policy in compiled)
        # Selectors are asked once per namespace and change of its labels, not once per pod.
        self._covering: dict[str, tuple[Mapping[str, str], Coverage]] = {}
        # Thousands of namespaces are covered by a few dozen sets of policies.
        self._groups: dict[tuple[int, ...], Group] = {(): _NO_POLICIES}

    def __len__(self) -> int:
        return len(self._policies)

    def covering(self, namespace: Namespace, own_namespace: str | None) -> Coverage:
        """The policies for a namespace; none for one that is protected or switched off."""
        known = self._covering.get(namespace.name)
        if known is not None:
            labels, coverage = known
            # Mostly the very same; comparing them would take longer than all the rest.
            if labels is namespace.labels or labels == namespace.labels:
                return coverage
        coverage = self._cover(namespace, own_namespace)
        if len(namespace.name) > _LONGEST_NAME:
            return coverage
        # Labels change without end, too: each change may make a group that nobody had.
        if max(len(self._covering), len(self._groups)) >= _MOST_REMEMBERED:
            self._covering.clear()
            self._groups = {(): _NO_POLICIES}
        self._covering[namespace.name] = (namespace.labels, coverage)
        return coverage

    def _cover(self, namespace: Namespace, own_namespace: str | None) -> Coverage:
        name, labels = namespace.name, namespace.labels
        if labels.get(LABEL_ENABLED) == "false":
            return Coverage(disabled=True)
        if name == own_namespace:
            return Coverage(protected=True)
        protected = name.startswith(SYSTEM_NAMESPACES)
        ranks = self._by_labels.matching(labels)
        if protected:
            ranks = tuple(rank for rank in ranks if name in self._policies[rank].named_namespaces)
        chosen = labels.get(LABEL_POLICY)
        missing = chosen if chosen and chosen not in self._rank else ""
        if chosen in self._rank and not protected:
            ranks = tuple(sorted({*ranks, self._rank[chosen]}))
        group = self._groups.get(ranks)
        if group is None:
            group = self._groups[ranks] = Group(tuple(self._policies[rank] for rank in ranks))
        return Coverage(group, protected and not ranks, missing_policy=missing)
