"""Pods that tests create at a real API server, and what a created pod shows."""

from __future__ import annotations

import json
import uuid
from typing import Any

from tests.support.kube.cluster import Json, KubeCluster

HEAVY: Json = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "heavy"},
    "handler": "heavy",
    "overhead": {"podFixed": {"cpu": "100m", "memory": "32Mi"}},
    "scheduling": {
        "nodeSelector": {"heavy": "true"},
        "tolerations": [{"key": "heavy", "operator": "Exists", "effect": "NoSchedule"}],
    },
}


def is_called(
    cluster: KubeCluster, namespace: str = "default", labels: dict[str, str] | None = None
) -> bool:
    """Whether a pod is settled by now: the API server learns of a webhook with a delay."""
    probe = simple_pod("probe", namespace)
    probe["metadata"]["labels"] = labels or {}
    annotations = cluster.create_pod(probe, dry_run=True).body["metadata"].get("annotations", {})
    return "podsettle.dev/applied" in annotations


def simple_pod(name: str, namespace: str = "default", **container: Any) -> Json:
    """A pod that runs to completion, with one init container that has no shell."""
    common = {"image": "registry.example/app:1", **container}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "restartPolicy": "Never",
            "initContainers": [{"name": "prepare", "command": ["/prepare", "x"], **common}],
            "containers": [{"name": "main", **common}],
        },
    }


def init_names(pod: Json) -> list[str]:
    return [container["name"] for container in pod["spec"].get("initContainers", [])]


def wrappers(container: Json) -> int:
    """How many wrappers stand in front of a container's command."""
    command: list[str] = container.get("command", [])
    return command.count("/podsettle/linger") + sum(
        part.startswith(": podsettle;") for part in command
    )


_PER_CREATION = (
    "creationTimestamp",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
)


def normal(pod: Json) -> Json:
    """A created pod without what differs from one creation to the next."""
    copy: Json = json.loads(json.dumps(pod))
    for key in _PER_CREATION:
        copy["metadata"].pop(key, None)
    for volume in copy["spec"].get("volumes", []):
        if volume["name"].startswith("kube-api-access-"):
            volume["name"] = "kube-api-access"
    for container in copy["spec"].get("initContainers", []) + copy["spec"]["containers"]:
        for mount in container.get("volumeMounts", []):
            if mount["name"].startswith("kube-api-access-"):
                mount["name"] = "kube-api-access"
    return copy


UNTOUCHED = {"hostnetwork-daemonset", "static-mirror", "windows-tekton"}
RESTRICTED: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def create(cluster: KubeCluster, pod: Json, *, dry_run: bool = False) -> Json:
    status, created, _ = cluster.create_pod(pod, dry_run=dry_run)
    assert status == 201, created
    return created


def fresh(pod: Json) -> Json:
    """The pod under a name that no pod has yet."""
    metadata = {key: value for key, value in pod["metadata"].items() if key != "name"}
    return pod | {"metadata": metadata | {"name": f"p-{uuid.uuid4().hex[:10]}"}}


RESOURCES: dict[str, Json] = {
    "BestEffort": {},
    "Burstable": {"requests": {"cpu": "50m"}, "limits": {"cpu": "1", "memory": "64Mi"}},
    "Guaranteed": {"limits": {"cpu": "100m", "memory": "64Mi"}},
}
