"""The RuntimeClasses of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import StringConstraints

from webhook.core.cluster.nodes import Node
from webhook.core.constants import DNS_SUBDOMAIN

RuntimeClassName = Annotated[str, StringConstraints(pattern=f"^{DNS_SUBDOMAIN}$", max_length=253)]
"""The name of a RuntimeClass in a policy. The API server accepts only DNS subdomains."""


@dataclass(frozen=True, slots=True)
class RuntimeClassInfo:
    """The fields of a RuntimeClass (`node.k8s.io/v1`) that podsettle reads."""

    name: str
    handler: str
    overhead: Mapping[str, Any] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    min_memory: str | None = None
    """The smallest memory limit that the handler accepts. None if the class does not state it."""
    allowed_annotations: frozenset[str] | None = None
    """The annotations for CRI-O that the handler allows. None if the class does not state them."""
    tolerations: tuple[Mapping[str, Any], ...] | None = None
    """The tolerations that the API server adds to the pods of the class, for previews. None if the
    class has no `scheduling`."""

    def no_matching_node(self, nodes: Iterable[Node]) -> str:
        """Return a clause for a message if no known node has the labels that the class selects.

        Return an empty text if a node has them, or if the class selects no labels.
        """
        selector = self.node_selector.items()
        if not selector or any(selector <= node.labels.items() for node in nodes):
            return ""
        labels = ",".join(f"{key}={value}" for key, value in selector)
        return f"no known node has the labels of the class ({labels}), so the pod waits for one"
