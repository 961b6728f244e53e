"""RuntimeClass objects for the nodes that were configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


def runtime_class(name: str, handler: str, node_selector: Mapping[str, str]) -> Json:
    """The RuntimeClass `name`. With a nodeSelector its pods go to matching nodes only."""
    made: Json = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": handler,
    }
    if node_selector:
        made["scheduling"] = {"nodeSelector": dict(node_selector)}
    return made
