"""podsettle as a real API server uses it, with failurePolicy Fail and reinvocation."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
import yaml

from tests.support.kube.cluster import KubeCluster
from tests.support.kube.fixtures import prepare_for_fixture_pods
from tests.support.process import RunningServer, await_that, start_server
from tests.support.reviews import PODS, load_pod

Json: TypeAlias = dict[str, Any]

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

POLICIES = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: settle}
spec:
  namespaceSelector: {}
  podSelector: {matchExpressions: [{key: test-delivery, operator: DoesNotExist}]}
  remedies:
    runtimeClass: {name: heavy}
    skipSELinuxRelabel: {}
    postInitSleep: {when: Always, containers: ["*"]}
---
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: by-image-volume}
spec:
  namespaceSelector: {}
  podSelector: {matchLabels: {test-delivery: image-volume}}
  remedies:
    postInitSleep: {when: Always, delivery: ImageVolume}
---
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: class-that-is-missing}
spec:
  podSelector: {matchLabels: {test-delivery: missing-class}}
  namespaceSelector: {}
  remedies:
    runtimeClass: {name: none-such}
"""


@pytest.fixture(scope="module")
def baselines() -> dict[str, Json]:
    """What the API server makes of each fixture pod without any webhook, filled by `settling`."""
    return {}


@pytest.fixture(scope="module")
def podsettle_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    manifests = tmp_path_factory.mktemp("manifests")
    (manifests / "policies.yaml").write_text(POLICIES)
    (manifests / "classes.yaml").write_text(yaml.safe_dump(HEAVY))
    (manifests / "namespaces.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "off", "labels": {"podsettle.dev/enabled": "false"}},
            }
        )
    )
    with start_server(manifests, tmp_path_factory.mktemp("certs")) as server:
        yield server


@pytest.fixture(scope="module")
def settling(
    cluster: KubeCluster, podsettle_server: RunningServer, baselines: dict[str, Json]
) -> Iterator[KubeCluster]:
    """The cluster with podsettle registered, and every fixture pod's baseline taken before."""
    prepare_for_fixture_pods(cluster)
    cluster.create("/apis/node.k8s.io/v1/runtimeclasses", HEAVY)
    cluster.namespace("off", labels={"podsettle.dev/enabled": "false"})
    for path in PODS:
        status, baseline, _ = cluster.create_pod(load_pod(path), dry_run=True)
        assert status == 201, baseline
        baselines[path.stem] = baseline
    with registered(
        cluster, "podsettle", f"{podsettle_server.url}/mutate", podsettle_server.ca.read_bytes()
    ):
        await_that(lambda: is_called(cluster), "the API server calls podsettle")
        yield cluster


class registered:  # noqa: N801
    """A webhook registered for the creation of pods while the block runs."""

    def __init__(self, cluster: KubeCluster, name: str, url: str, ca: bytes) -> None:
        self.cluster, self.name = cluster, name
        self.body: Json = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": f"pods.{name}.dev",
                    "clientConfig": {"url": url, "caBundle": base64.b64encode(ca).decode()},
                    "rules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "resources": ["pods"],
                            "operations": ["CREATE"],
                        }
                    ],
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "failurePolicy": "Fail",
                    "reinvocationPolicy": "IfNeeded",
                    "timeoutSeconds": 10,
                }
            ],
        }

    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"

    def __enter__(self) -> None:
        self.cluster.create(self.path, self.body)

    def __exit__(self, *_: object) -> None:
        self.cluster.request("DELETE", f"{self.path}/{self.name}")


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
    for key in (
        "uid",
        "creationTimestamp",
        "resourceVersion",
        "managedFields",
        "name",
        "namespace",
    ):
        copy["metadata"].pop(key, None)
    for volume in copy["spec"].get("volumes", []):
        if volume["name"].startswith("kube-api-access-"):
            volume["name"] = "kube-api-access"
    for container in copy["spec"].get("initContainers", []) + copy["spec"]["containers"]:
        for mount in container.get("volumeMounts", []):
            if mount["name"].startswith("kube-api-access-"):
                mount["name"] = "kube-api-access"
    return copy
