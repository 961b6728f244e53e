"""Nodes of a real API server, and users of it, for commands that look at a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.support.kube.cluster import KubeCluster
from tests.support.service_accounts import grant, kubeconfig_of_account


def add_node(cluster: KubeCluster, name: str, runtime: str, **status: Any) -> None:
    metadata = {"name": name, "labels": {"pool": name}}
    node = cluster.create("/api/v1/nodes", {"metadata": metadata})
    info = {**node["status"]["nodeInfo"], "containerRuntimeVersion": runtime}
    patch = {"status": {"nodeInfo": info, **status}}
    answer = cluster.request("PATCH", f"/api/v1/nodes/{name}/status", patch)
    assert answer.status == 200, answer.body


def environment_with(kubeconfig: Path) -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": str(kubeconfig)}


def account_with(
    cluster: KubeCluster, directory: Path, *rules: dict[str, Any]
) -> tuple[Path, dict[str, str]]:
    """A new account with some rights in the whole cluster: its kubeconfig and an environment."""
    account = f"{cluster.namespace('user-')}:default"
    grant(cluster, account, list(rules))
    kubeconfig = kubeconfig_of_account(cluster, account, directory)
    return kubeconfig, environment_with(kubeconfig)
