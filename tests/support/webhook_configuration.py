"""podsettle's MutatingWebhookConfiguration at a real API server."""

from __future__ import annotations

from typing import Any

from tests.support.kube.cluster import KubeCluster

PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


def as_the_chart_writes_it() -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "podsettle"},
        "webhooks": [
            {
                "name": "opt-in.podsettle.dev",
                "clientConfig": {
                    "service": {"namespace": "settle", "name": "hook", "path": "/mutate"}
                },
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["pods"],
                        "operations": ["CREATE"],
                        "scope": "Namespaced",
                    }
                ],
                "namespaceSelector": {
                    "matchExpressions": [{"key": "podsettle.dev/policy", "operator": "Exists"}]
                },
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "timeoutSeconds": 2,
            }
        ],
    }


def overwrite(cluster: KubeCluster, body: dict[str, Any]) -> None:
    """As by hand, or by a tool that writes the whole object."""
    for _ in range(20):
        found = cluster.request("GET", f"{PATH}/podsettle").body
        body["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        answer = cluster.request("PUT", f"{PATH}/podsettle", body)
        if answer.status != 409:
            break
    assert answer.status == 200, answer.body


ENTRY: dict[str, Any] = {
    "name": "opt-in.podsettle.dev",
    "clientConfig": {"service": {"name": "podsettle", "namespace": "settle-system"}},
    "failurePolicy": "Ignore",
    "timeoutSeconds": 2,
    "namespaceSelector": {
        "matchExpressions": [
            {"key": "podsettle.dev/policy", "operator": "Exists"},
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["settle-system", "kube-system"],
            },
        ]
    },
}
