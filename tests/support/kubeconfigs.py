"""Kubeconfigs for API servers that a test starts, or that do not exist."""

from __future__ import annotations

import json
from pathlib import Path


def write_kubeconfig(directory: Path, server: str, **cluster: str) -> Path:
    """Write the kubeconfig of a user without a credential. Return its path.

    `cluster` has further fields of the cluster, with underscores for hyphens.
    """
    fields = {key.replace("_", "-"): value for key, value in cluster.items()}
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server, **fields}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = directory / "kubeconfig"
    path.write_text(json.dumps(config))
    return path
