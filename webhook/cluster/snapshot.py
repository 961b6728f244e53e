"""An immutable view of the cluster, for decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from webhook.core.cluster.nodes import Nodes
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.cluster.view import Namespace
from webhook.core.constants import LABEL_NAMESPACE_NAME
from webhook.core.defects.versions import Version
from webhook.core.policy.coverage import PolicySet


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An immutable ClusterView. Each change of the cluster creates a new snapshot."""

    policies: PolicySet = field(default_factory=PolicySet)
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    runtime_classes: Mapping[str, RuntimeClassInfo] = field(default_factory=dict)
    nodes: Nodes = field(default_factory=Nodes)
    server_version: Version | None = None
    invents_namespaces: bool = True
    """Whether an unknown namespace counts as existing, with the label of its name only."""

    def namespace(self, name: str) -> Namespace | None:
        """Return a namespace, or None if it is unknown and `invents_namespaces` is False."""
        namespace = self.namespaces.get(name)
        if namespace is None and self.invents_namespaces:
            return Namespace(name, {LABEL_NAMESPACE_NAME: name})
        return namespace

    def contains_namespace(self, name: str) -> bool:
        """Return whether the view contains a namespace, and does not only assume that it exists."""
        return self.namespaces.get(name) is not None

    def runtime_class(self, name: str) -> RuntimeClassInfo | None:
        """Return a RuntimeClass, or None if it does not exist."""
        return self.runtime_classes.get(name)

    def with_namespace_labels(self, name: str, labels: Mapping[str, str]) -> Snapshot:
        """Return a copy in which one namespace has other labels, for a preview."""
        namespace = self.namespaces.get(name)
        fixed_selinux_level = namespace.fixed_selinux_level if namespace else False
        changed_namespace = Namespace(
            name, {**labels, LABEL_NAMESPACE_NAME: name}, fixed_selinux_level
        )
        return replace(self, namespaces={**self.namespaces, name: changed_namespace})
