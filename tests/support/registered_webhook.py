"""A webhook registered at a real API server."""

from __future__ import annotations

import base64

from tests.support.kube.cluster import Json, KubeCluster


class registered:  # noqa: N801
    """A webhook registered for the creation of pods while the block runs."""

    def __init__(
        self,
        cluster: KubeCluster,
        name: str,
        url: str,
        ca: bytes,
        *,
        reinvocation_policy: str = "IfNeeded",
    ) -> None:
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
                    "reinvocationPolicy": reinvocation_policy,
                    "timeoutSeconds": 10,
                }
            ],
        }

    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"

    def __enter__(self) -> None:
        self.cluster.create(self.path, self.body)

    def __exit__(self, *_: object) -> None:
        self.cluster.request("DELETE", f"{self.path}/{self.name}")
