"""The view of a cluster that decisions read.

`webhook.cluster` creates it from manifests on disk and from an API server. A view is immutable, so
a change of the cluster cannot affect a decision in progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from webhook.core.cluster.nodes import Nodes
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.constants import LABEL_NAMESPACE_NAME
from webhook.core.defects.versions import Version

NO_SELECTOR: Mapping[str, str] = {}
"""One for all namespaces, because a cluster can have ten thousand."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """The fields of a Namespace that podsettle reads."""

    name: str
    labels: Mapping[str, str]
    fixed_selinux_level: bool = False
    """Whether OpenShift gives all pods of the namespace one SELinux level (annotation
    `openshift.io/sa.scc.mcs`)."""
    node_selector: Mapping[str, str] = field(default_factory=lambda: NO_SELECTOR)
    """What the API server adds to the nodeSelector of all pods of the namespace, because of an
    annotation for PodNodeSelector or OpenShift."""


class ClusterFacts(NamedTuple):
    """All facts about the cluster on which a decision may depend.

    The decision cache is cleared when they change.
    """

    nodes: Nodes
    runtime_classes: Mapping[str, RuntimeClassInfo]
    server_version: Version | None
    """The API server's version, or None if there is no API server."""
    linger_image: str | None
    """The image of the helper. None if none is configured."""
    linger_version: Version | None
    """The version of the helper in the image. None if nothing says it."""
    docs_url: str | None
    """The address of the explanation that a changed pod names. None if none is configured."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What podsettle knows of a cluster. Each change of the cluster creates a new view."""

    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    runtime_classes: Mapping[str, RuntimeClassInfo] = field(default_factory=dict)
    """The RuntimeClasses by name. If one changes, the next view has another mapping."""
    nodes: Nodes = field(default_factory=Nodes)
    server_version: Version | None = None
    """The API server's version, or None if there is no API server."""
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

    def with_namespace_labels(self, name: str, labels: Mapping[str, str]) -> Self:
        """Return a copy in which one namespace has other labels, for a preview."""
        changed_namespace = replace(
            self.namespaces.get(name) or Namespace(name, {}),
            labels={**labels, LABEL_NAMESPACE_NAME: name},
        )
        return replace(self, namespaces={**self.namespaces, name: changed_namespace})
