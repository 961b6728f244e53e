"""The policies in force, compiled once per change, and which of them cover what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from webhook.core.image_config import LookupRules
from webhook.core.names import (
    LABEL_ENABLED,
    LABEL_NAMESPACE_NAME,
    LABEL_POLICY,
    SYSTEM_NAMESPACES,
)
from webhook.core.policy import REMEDIES, SettlePolicy
from webhook.core.remedy import Remedy
from webhook.core.selectors import Matcher, compile_selector
from webhook.core.view import Namespace

_MOST_REMEMBERED = 20_000
_LONGEST_NAME = 63
"""Namespaces come and go, and a name in a request may be no namespace at all."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy, ready to be asked."""

    name: str
    priority: int
    audit: bool
    covers_namespace: Matcher | None
    """None: only namespaces that name the policy."""
    named_namespaces: frozenset[str]
    covers_pod: Matcher
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
        covers_namespace=compile_selector(selector) if selector is not None else None,
        named_namespaces=selector.names(LABEL_NAMESPACE_NAME) if selector else frozenset(),
        covers_pod=compile_selector(spec.pod_selector),
        remedies=tuple(
            (name, REMEDIES[name], settings) for name, settings in spec.settings().items()
        ),
        image_rules=spec.image_config.rules,
    )


@dataclass(frozen=True, slots=True)
class Coverage:
    """What covers a namespace, and what a person should know about it."""

    policies: tuple[Policy, ...] = ()
    protected: bool = False
    disabled: bool = False
    missing_policy: str = ""


class PolicySet:
    """Policies by priority, then name. Immutable; a change makes a new one."""

    def __init__(self, documents: Iterable[SettlePolicy] = ()) -> None:
        compiled = sorted(
            (compile_policy(document) for document in documents),
            key=lambda policy: (-policy.priority, policy.name),
        )
        self._policies = tuple(compiled)
        self._by_name = {policy.name: policy for policy in compiled}
        # Selectors are asked once per namespace and change of its labels, not once per pod.
        self._covering: dict[str, tuple[Mapping[str, str], Coverage]] = {}

    def __len__(self) -> int:
        return len(self._policies)

    def covering(self, namespace: Namespace, own_namespace: str | None) -> Coverage:
        """The policies for a namespace; none for one that is protected or switched off."""
        known = self._covering.get(namespace.name)
        if known is not None and known[0] is namespace.labels:
            return known[1]
        coverage = self._cover(namespace, own_namespace)
        if len(self._covering) >= _MOST_REMEMBERED or len(namespace.name) > _LONGEST_NAME:
            self._covering.clear()
        self._covering[namespace.name] = (namespace.labels, coverage)
        return coverage

    def _cover(self, namespace: Namespace, own_namespace: str | None) -> Coverage:
        name, labels = namespace.name, namespace.labels
        if labels.get(LABEL_ENABLED) == "false":
            return Coverage(disabled=True)
        if name == own_namespace:
            return Coverage(protected=True)
        protected = name.startswith(SYSTEM_NAMESPACES)
        chosen = labels.get(LABEL_POLICY)
        covering = tuple(
            policy
            for policy in self._policies
            if (policy.name == chosen and not protected)
            or (
                policy.covers_namespace is not None
                and policy.covers_namespace(labels)
                and (not protected or name in policy.named_namespaces)
            )
        )
        missing = chosen if chosen and chosen not in self._by_name else ""
        return Coverage(covering, protected and not covering, missing_policy=missing)
