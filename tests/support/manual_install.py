"""What a chart installs, without Helm, and replicas of podsettle that manage their certificates."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.support.kube.cluster import Json, KubeCluster
from tests.support.process import PODSETTLE, free_port
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import TIMEOUT_SECONDS, await_that
from webhook.tls.authority import Authority

_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class Replica:
    """A `podsettle serve` process of an installation."""

    def __init__(
        self, process: subprocess.Popen[bytes], port: int, web_port: int, log: Path
    ) -> None:
        self.process, self.port, self.log = process, port, log
        # Other tests verify the certificate. Probes do not verify it either.
        self._client = httpx.Client(base_url=f"https://127.0.0.1:{web_port}", verify=False)

    def readyz(self) -> httpx.Response | None:
        """Return the checks of the web port, or None without an answer."""
        try:
            return self._client.get("/readyz?verbose", timeout=TIMEOUT_SECONDS)
        except httpx.TransportError:
            return None

    @property
    def ready(self) -> bool:
        answer = self.readyz()
        return answer is not None and answer.status_code == 200

    def log_text(self) -> str:
        return self.log.read_text()

    def close(self) -> None:
        self._client.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)


class Installation:
    """Namespace, Service, Secret, Lease and webhook configuration, as the chart has them."""

    def __init__(self, cluster: KubeCluster, balancer: TcpProxy, directory: Path) -> None:
        self.cluster, self.balancer = cluster, balancer
        self._directory = directory
        self._replicas: list[Replica] = []
        self.namespace = cluster.namespace("settle-")
        self.configuration = self.namespace
        self.secret_path = f"/api/v1/namespaces/{self.namespace}/secrets"
        self._lease_path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        service = {"type": "ExternalName", "externalName": "localhost"}
        cluster.create(
            f"/api/v1/namespaces/{self.namespace}/services",
            {"metadata": {"name": "podsettle"}, "spec": service},
        )
        cluster.create(self._lease_path, {"metadata": {"name": "podsettle"}})
        self.create_secret()
        self.chosen = cluster.namespace("chosen-", labels={"podsettle.dev/policy": "settle"})
        cluster.create(_CONFIGURATIONS, self._webhook_configuration())

    def create_secret(self) -> None:
        """As an installation and an upgrade do it where there is none: without data."""
        self.cluster.create(self.secret_path, {"metadata": {"name": "podsettle-tls"}})

    def start(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Replica:
        """One more replica, which is not waited for."""
        port, web_port = free_port(), free_port()
        log = self._directory / f"replica-{len(self._replicas)}.log"
        command = [PODSETTLE, "serve", "--port", str(port), "--web-port", str(web_port)]
        command += ["--tls", "self-managed"]
        command += ["--own-namespace", self.namespace]
        command += ["--webhook-configuration", self.configuration, *arguments]
        variables = {
            **os.environ,
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "PODSETTLE_DRAIN_QUIET": "4s",
            **(environment or {}),
        }
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, env=variables)
        replica = Replica(process, port, web_port, log)
        self._replicas.append(replica)
        return replica

    def serve(self, *replicas: Replica) -> None:
        """Wait until replicas are ready, and let the Service lead to them alone."""
        for replica in replicas:
            await_that(lambda replica=replica: replica.ready, f"{replica.log} is ready")  # type: ignore[misc]
        self.balancer.targets = [("127.0.0.1", replica.port) for replica in replicas]

    def stored(self) -> Authority:
        """What is in the Secret now."""
        data = self.cluster.request("GET", f"{self.secret_path}/podsettle-tls").body.get("data")
        return Authority.read({k: base64.b64decode(v) for k, v in (data or {}).items()})

    def patch_secret(self, data: Mapping[str, bytes | None]) -> None:
        """Write some keys of the Secret, as `kubectl patch` does."""
        values = {k: v if v is None else base64.b64encode(v).decode() for k, v in data.items()}
        path = f"{self.secret_path}/podsettle-tls"
        assert self.cluster.request("PATCH", path, {"data": values}).status == 200

    def empty_secret(self) -> None:
        """Remove all data of the Secret."""
        path = f"{self.secret_path}/podsettle-tls"
        patch = [{"op": "remove", "path": "/data"}]
        assert self.cluster.request("PATCH", path, patch).status == 200

    def delete_secret(self) -> None:
        assert self.cluster.request("DELETE", f"{self.secret_path}/podsettle-tls").status == 200

    def bundle(self) -> bytes:
        """What the API server trusts when it calls podsettle."""
        webhook = self._registered()["webhooks"][0]
        return base64.b64decode(webhook["clientConfig"].get("caBundle", ""))

    def remove_bundle(self) -> None:
        patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
        path = f"{_CONFIGURATIONS}/{self.configuration}"
        assert self.cluster.request("PATCH", path, patch).status == 200

    def holder(self) -> Replica:
        """The replica that holds the Lease, awaited; by what it logged, which says so once."""
        found: list[Replica] = []

        def held() -> bool:
            for replica in self._replicas:
                lines = replica.log_text().splitlines()
                states = [line for line in lines if "held by this replica" in line]
                if replica.process.poll() is None and states and "no longer" not in states[-1]:
                    found.append(replica)
            return bool(found)

        await_that(held, "somebody holds the Lease")
        return found[0]

    def settles(self) -> bool:
        """Whether a pod is settled now; a failure to call podsettle is an error."""
        status, answer, _ = self.cluster.create_pod(self.pod(), dry_run=True)
        assert status == 201, answer
        return _is_settled(answer)

    def settles_again(self) -> bool:
        """The same, but a pod that is refused is a no: the API server may not have seen it all."""
        status, answer, _ = self.cluster.create_pod(self.pod(), dry_run=True)
        return status == 201 and _is_settled(answer)

    def pod(self) -> Json:
        """A pod to be settled."""
        container = {"image": "registry.example/app:1", "command": ["sh", "-c", "x"]}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod", "namespace": self.chosen},
            "spec": {
                "restartPolicy": "Never",
                "initContainers": [{"name": "prepare", **container}],
                "containers": [{"name": "main", **container}],
            },
        }

    def close(self) -> None:
        self.cluster.request("DELETE", f"{_CONFIGURATIONS}/{self.configuration}")
        for replica in self._replicas:
            replica.close()

    def _registered(self) -> Json:
        return self.cluster.request("GET", f"{_CONFIGURATIONS}/{self.configuration}").body

    def _webhook_configuration(self) -> dict[str, Any]:
        service = {"namespace": self.namespace, "name": "podsettle", "path": "/mutate"}
        pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        chosen = {"matchLabels": {"kubernetes.io/metadata.name": self.chosen}}
        return {
            "metadata": {"name": self.configuration},
            "webhooks": [
                {
                    "name": "opt-in.podsettle.dev",
                    "clientConfig": {"service": {**service, "port": self.balancer.port}},
                    "rules": [{**pods, "operations": ["CREATE"], "scope": "Namespaced"}],
                    # Tests share the cluster: each registers for a namespace of its own.
                    "namespaceSelector": chosen,
                    "failurePolicy": "Fail",
                    "timeoutSeconds": 5,
                    "sideEffects": "None",
                    "reinvocationPolicy": "IfNeeded",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }


def _is_settled(pod: Json) -> bool:
    return "podsettle.dev/applied" in (pod["metadata"].get("annotations") or {})
