"""A webhook registered at a real API server."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.support.e2e_pods import is_called
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.process import RunningServer, start_server
from tests.support.waiting import await_that


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


@contextmanager
def podsettle_called_by(
    cluster: KubeCluster,
    directory: Path,
    *arguments: str,
    documents: Iterable[Json] | None = None,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
) -> Iterator[RunningServer]:
    """Run podsettle, registered with a cluster, while the block runs.

    It serves the policies and nodes of documents, or those of the cluster. The block begins once
    the API server calls it for pods of the namespace with these labels, which it has to settle.
    """
    manifests, kubeconfig = directory / "manifests", None
    if documents is None:
        kubeconfig = cluster.kubeconfig
    else:
        manifests.mkdir()
        (manifests / "all.yaml").write_text(yaml.safe_dump_all(documents))
    with (
        start_server(
            None if documents is None else manifests,
            directory / "certs",
            *arguments,
            kubeconfig=kubeconfig,
        ) as server,
        registered(cluster, "podsettle", f"{server.url}/mutate", server.ca.read_bytes()),
    ):
        await_that(lambda: is_called(cluster, namespace, labels), "the API server calls podsettle")
        yield server
