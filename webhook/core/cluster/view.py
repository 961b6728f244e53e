"""The view of the cluster that a decision is made in.

One protocol, two sources (`webhook.cluster`): manifests on disk, and an API server. Whatever a
view returns is immutable, so a decision never sees half a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from webhook.core.cluster.nodes import Nodes
    from webhook.core.cluster.runtime_classes import RuntimeClassInfo
    from webhook.core.defects.versions import Version


@dataclass(frozen=True, slots=True)
class Namespace:
    """What podsettle reads of a Namespace."""

    name: str
    labels: Mapping[str, str]
    fixed_selinux_level: bool = False
    """Whether OpenShift gives the namespace's pods one SELinux level
    (annotation `openshift.io/sa.scc.mcs`)."""


class ClusterView(Protocol):
    """Everything that a decision asks about the cluster."""

    @property
    def nodes(self) -> Nodes:
        """The nodes, perhaps none."""

    @property
    def server_version(self) -> Version | None:
        """The API server's version; None where there is no server to ask."""

    @property
    def runtime_classes(self) -> Mapping[str, RuntimeClassInfo]:
        """The RuntimeClasses by name; another mapping after a change."""

    def namespace(self, name: str) -> Namespace | None:
        """The namespace, or None where the view does not know it."""

    def runtime_class(self, name: str) -> RuntimeClassInfo | None:
        """The RuntimeClass, or None where it does not exist."""
