"""The manifest of a RuntimeClass."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from webhook.core.types import Json


def runtime_class_manifest(
    name: str,
    handler: str,
    node_selector: Mapping[str, str],
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> Json:
    """Return a RuntimeClass. With a node selector, its pods run only on matching nodes."""
    manifest: Json = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": handler,
    }
    if annotations:
        manifest["metadata"]["annotations"] = dict(annotations)
    if node_selector:
        manifest["scheduling"] = {"nodeSelector": dict(node_selector)}
    return manifest
