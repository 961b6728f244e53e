"""Nodes of a real API server, and users of it, for commands that look at a cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.support.kube.cluster import KubeCluster
from tests.support.service_accounts import await_grant

_RBAC = "/apis/rbac.authorization.k8s.io/v1"


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
    name = cluster.namespace("user-")
    role = {"metadata": {"name": name}, "rules": list(rules)}
    cluster.create(f"{_RBAC}/clusterroles", role)
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": name}],
    }
    cluster.create(f"{_RBAC}/clusterrolebindings", binding)
    for rule in rules:
        asked = {"verb": rule["verbs"][0], "group": rule["apiGroups"][0]}
        asked |= {"resource": rule["resources"][0], "name": rule.get("resourceNames", [""])[0]}
        await_grant(cluster, f"{name}:default", {"resourceAttributes": asked})
    configuration = json.loads(cluster.kubeconfig.read_text())
    configuration["users"][0]["user"] = {"token": cluster.token_for("default", name)}
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(json.dumps(configuration))
    return kubeconfig, environment_with(kubeconfig)
