"""The manifest of a RuntimeClass."""

from __future__ import annotations

from collections.abc import Mapping

from webhook.core.types import Json


def runtime_class_manifest(name: str, handler: str, node_selector: Mapping[str, str]) -> Json:
    """Return a RuntimeClass. With a node selector, its pods run only on matching nodes."""
    manifest: Json = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": handler,
    }
    if node_selector:
        manifest["scheduling"] = {"nodeSelector": dict(node_selector)}
    return manifest
