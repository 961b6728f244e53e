"""A policy with every remedy, and pods to which each of them applies."""

from __future__ import annotations

from tests.support.e2e_pods import simple_pod
from tests.support.kube.cluster import Json, KubeCluster

RUNTIME_CLASS = "every-remedy"
EVERY_REMEDY: Json = {
    "runtimeClass": {"name": RUNTIME_CLASS, "when": "Always"},
    "skipSELinuxRelabel": {"when": "Always", "pods": "All"},
    "seLinuxChangePolicy": "Recursive",
    "fsGroupChangePolicy": "OnRootMismatch",
    "postInitSleep": {"when": "Always", "containers": ["*"]},
    "openFiles": {"soft": 65_536, "hard": 524_288, "containers": ["*"], "initContainers": ["*"]},
    "retryInitExit255": {"when": "Always", "initContainers": ["prepare", "place-scripts"]},
    "startGate": {"waitFor": [{"dns": "kubernetes.default.svc"}]},
    "kubeletGate": {},
}
"""The settings of each remedy, with which it applies to each pod that it can apply to."""


def create_runtime_class(cluster: KubeCluster) -> None:
    """Create the RuntimeClass of the policy."""
    body = {"metadata": {"name": RUNTIME_CLASS}, "handler": RUNTIME_CLASS}
    cluster.create("/apis/node.k8s.io/v1/runtimeclasses", body)


def every_remedy_pod(name: str, namespace: str) -> Json:
    """Return a pod to which each remedy applies."""
    pod = simple_pod(name, namespace)
    pod["spec"]["securityContext"] = {"fsGroup": 1000, "seLinuxOptions": {"level": "s0:c1,c2"}}
    pod["spec"]["containers"][0]["command"] = ["/main"]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "work", "mountPath": "/work"}]
    pod["spec"]["volumes"] = [{"name": "work", "persistentVolumeClaim": {"claimName": "work"}}]
    return pod
