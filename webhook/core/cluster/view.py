"""The interface through which a decision reads the cluster.

`webhook.cluster` implements it for manifests on disk and for an API server. Every object that a
view returns is immutable, so a change of the cluster cannot affect a decision in progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from webhook.core.cluster.nodes import Nodes
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.defects.versions import Version


@dataclass(frozen=True, slots=True)
class Namespace:
    """The fields of a Namespace that podsettle reads."""

    name: str
    labels: Mapping[str, str]
    fixed_selinux_level: bool = False
    """Whether OpenShift gives all pods of the namespace one SELinux level (annotation
    `openshift.io/sa.scc.mcs`)."""


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
    docs_url: str | None
    """The address of the explanation that a changed pod names. None if none is configured."""


class ClusterView(Protocol):
    """The facts about the cluster that decisions read."""

    @property
    def nodes(self) -> Nodes:
        """The known nodes."""

    @property
    def server_version(self) -> Version | None:
        """The API server's version, or None if there is no API server."""

    @property
    def runtime_classes(self) -> Mapping[str, RuntimeClassInfo]:
        """The RuntimeClasses by name. If one changes, the view returns another mapping."""

    def namespace(self, name: str) -> Namespace | None:
        """Return the namespace, or None if the view does not know it."""

    def runtime_class(self, name: str) -> RuntimeClassInfo | None:
        """Return the RuntimeClass, or None if it does not exist."""
