"""A real kube-apiserver on a real etcd, for the tests.

    with KubeCluster.start() as cluster:
        cluster.namespace("ci", labels={"podsettle.dev/policy": "tekton-on-crio"})
        status, created, warnings = cluster.create_pod(pod)

There is no controller manager, no scheduler and no kubelet; `tests.support.node` adds them to a
cluster that has an address other than loopback. Without them, `namespace` makes the ServiceAccount
that a pod needs, and `quota` fills in the status without which no quota can be enforced. A deleted
namespace stays `Terminating`: take a new name instead. A pod that has a node or a finalizer goes
away only with a grace period of 0 and without its finalizer.

What governs admission (webhook configurations, labels of namespaces) reaches the API server's
caches some milliseconds after it was written: await its effect, for example with dry runs.

A cluster takes three seconds to start and 330 MiB, so share one: the fixture `cluster` is one for
each worker of `pytest -n N --dist loadfile`, and keeps the tests of a module on one worker. Name
what a test creates outside of its namespace after it, or delete it. A test that stops servers
starts a cluster of its own. A cluster belongs to the thread that started it: when that thread ends,
Linux kills its processes. That is what leaves none behind when pytest is killed.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx
import trustme

from tests.support.kube.server import Server
from tools.build import Programs, programs

Json = dict[str, Any]

_TIMEOUT_SECONDS = 120.0
LOOPBACK = "127.0.0.1"
SERVICE_CIDR = "10.0.0.0/24"
# The address and the names of the Service `kubernetes`.
_SERVICE_NAMES = ("10.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_ISSUER = "https://kubernetes.default.svc"
_WARNING = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')

AUDIT_POLICY: Json = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete"]},
        {"level": "None"},
    ],
}


class Answer(NamedTuple):
    """An answer of the API server."""

    status: int
    body: Json
    warnings: list[str]
    """The texts of its Warning headers, as kubectl prints them."""


class KubeCluster:
    """A running API server. `start` starts it."""

    def __init__(
        self, directory: Path, found: Programs, flags: Iterable[str], address: str
    ) -> None:
        self.address = address
        """Where the API server listens."""
        self.directory = directory
        """Everything the servers write, their logs too; removed in the end."""
        self.ca_file = directory / "ca.crt"
        self.ca_key_file = directory / "ca.key"
        """The controller manager signs certificates with it."""
        self.service_account_key_file = directory / "service-accounts.key"
        self.kubeconfig = directory / "kubeconfig"
        self.audit_log = directory / "audit.log"
        self.token = secrets.token_hex()
        """Of a member of system:masters."""
        self.etcd_url = f"unix://{directory}/etcd.sock"
        self._etcd_http = directory / "etcd-http.sock"
        self._programs = found
        self._ca = trustme.CA()
        # Bound, and never listened on: this keeps the port ours, also between two API servers.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._port.bind((address, 0))
        self.port: int = self._port.getsockname()[1]
        self.url = f"https://{address}:{self.port}"
        self._write_configuration()
        self._etcd = Server(found.etcd, self._etcd_flags(), directory / "etcd.log")
        self._apiserver = Server(
            found.kube_apiserver,
            [*self._apiserver_flags(), *flags],
            directory / "kube-apiserver.log",
        )
        self._client = self._new_client()

    @classmethod
    @contextmanager
    def start(cls, *flags: str, address: str = LOOPBACK) -> Iterator[Self]:
        """A cluster that is ready, until the block ends; flags are further ones of the API server.

        At an address other than loopback, the Service `kubernetes` leads to the API server, and the
        API server verifies the certificates of kubelets.

        Builds the programs where they are not there yet: see `tools.build`.
        """
        found = programs()
        with ExitStack() as stack:
            # Not pytest's tmp_path: the path of a Unix socket has to be short.
            directory = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="podsettle-", ignore_cleanup_errors=True)
            )
            cluster = cls(Path(directory), found, flags, address)
            stack.callback(cluster._close)
            cluster.start_etcd()
            cluster.start_apiserver()
            cluster.namespace("default")
            cluster.namespace("kube-system")
            yield cluster

    @property
    def pids(self) -> tuple[int, int]:
        """The processes of etcd and of kube-apiserver, both of which run."""
        return self._etcd.pid, self._apiserver.pid

    def start_apiserver(self) -> None:
        """Start the API server at the same address as before, and wait until it is ready."""
        self._apiserver.start()
        self._apiserver.await_that(self._is_ready)

    def kill_apiserver(self) -> None:
        """End the API server as an outage does: a graceful stop waits for watches to end."""
        self._client.close()
        self._apiserver.kill()
        self._client = self._new_client()

    def start_etcd(self) -> None:
        """Start etcd on the data it had, and wait until it and a running API server are ready."""
        self._etcd.start()
        self._etcd.await_that(self._etcd_is_healthy)
        if self._apiserver.running:
            self._apiserver.await_that(self._is_ready)

    def stop_etcd(self) -> None:
        """Kill etcd, as an outage does: the API server goes on, and what it is asked times out."""
        self._etcd.kill()

    def compact_etcd(self) -> int:
        """Remove the history of etcd, and return the oldest revision that is left."""
        transport = httpx.HTTPTransport(uds=str(self._etcd_http))
        with httpx.Client(transport=transport, base_url="http://etcd") as client:
            found = client.post("/v3/kv/range", json={"key": "AA=="}).raise_for_status().json()
            revision = int(found["header"]["revision"])
            client.post("/v3/kv/compaction", json={"revision": revision}).raise_for_status()
        return revision

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        *,
        token: str | None = None,
        timeout: float = _TIMEOUT_SECONDS,
    ) -> Answer:
        """Send JSON as it is, with no typed round trip; the query belongs to the path.

        A PATCH is a JSON patch if its body is a list, else a merge patch.
        """
        sent = {"Authorization": f"Bearer {token or self.token}"}
        content = None
        if body is not None:
            content = json.dumps(body)
            kind = "application/json"
            if method == "PATCH":
                kind = f"application/{'json' if isinstance(body, list) else 'merge'}-patch+json"
            sent["Content-Type"] = kind
        answer = self._client.request(
            method, path, content=content, headers=sent | dict(headers or {}), timeout=timeout
        )
        return Answer(answer.status_code, _decoded(answer), _warnings(answer))

    def create(self, path: str, body: Json) -> Json:
        """Create an object. The API server must accept it."""
        status, created, _ = self.request("POST", path, body)
        assert status == 201, f"POST {path}: {status} {created.get('message', created)}"
        return created

    def create_pod(
        self,
        pod: Json,
        *,
        dry_run: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Create a pod in the namespace that it names, with the warnings that kubectl gets."""
        path = f"/api/v1/namespaces/{pod['metadata'].get('namespace', 'default')}/pods"
        query = "fieldValidation=Warn" + ("&dryRun=All" if dry_run else "")
        return self.request("POST", f"{path}?{query}", pod, headers)

    def namespace(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        service_accounts: Iterable[str] = ("default",),
    ) -> str:
        """Make a namespace in which pods can be created; one that exists gets what it lacks.

        A name that ends in `-` is a prefix, to which the API server adds what makes it unique.
        """
        metadata: Json = {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
        key = "generateName" if name.endswith("-") else "name"
        body = {"metadata": metadata | {key: name}}
        status, made, _ = self.request("POST", "/api/v1/namespaces", body)
        if status == 409:
            path = f"/api/v1/namespaces/{name}"
            status, made, _ = self.request("PATCH", path, {"metadata": metadata})
        assert status in (200, 201), made
        actual: str = made["metadata"]["name"]
        for account in service_accounts:
            path = f"/api/v1/namespaces/{actual}/serviceaccounts"
            status, made, _ = self.request("POST", path, {"metadata": {"name": account}})
            assert status in (201, 409), made
        return actual

    def quota(self, namespace: str, hard: Mapping[str, str]) -> None:
        """Make a ResourceQuota of which nothing is used, and that is in force on return."""
        self._quota(namespace, "quota", hard)
        # The plugin learns of quotas in their order: once it knows the second it knows the first.
        probe = "podsettle-probe"
        self._quota(namespace, probe, {"count/podtemplates": "0"})
        template = {
            "metadata": {"name": probe, "labels": {"app": probe}},
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
        }
        path = f"/api/v1/namespaces/{namespace}/podtemplates?dryRun=All"

        def refused() -> bool:
            return "exceeded quota" in str(self.request("POST", path, template).body)

        self._apiserver.await_that(refused)
        self.request("DELETE", f"/api/v1/namespaces/{namespace}/resourcequotas/{probe}")

    def _quota(self, namespace: str, name: str, hard: Mapping[str, str]) -> None:
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        quota = {"metadata": {"name": name}, "spec": {"hard": dict(hard)}}
        self.create(path, quota)
        # In place of the quota controller.
        status = {"hard": dict(hard), "used": dict.fromkeys(hard, "0")}
        code, answer, _ = self.request("PATCH", f"{path}/{name}/status", {"status": status})
        assert code == 200, answer

    def token_for(
        self, service_account: str, namespace: str = "default", audiences: Iterable[str] = ()
    ) -> str:
        """A token of a ServiceAccount, for the API server or for the given audiences."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        spec = {"audiences": list(audiences)} if audiences else {}
        token: str = self.create(path, {"spec": spec})["status"]["token"]
        return token

    def kubectl(
        self, *arguments: str | Path, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator."""
        assert self._programs.kubectl, "there is no kubectl: see tools.build"
        cache = self.directory / "kubectl"
        flags = [f"--kubeconfig={self.kubeconfig}", f"--cache-dir={cache}"]
        return subprocess.run(
            [str(self._programs.kubectl), *flags, *map(str, arguments)],
            input=input,
            env={**os.environ, "HOME": str(self.directory)},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )

    def audit_events(self) -> list[Json]:
        """The audit events of every write so far. A request's own may follow its answer."""
        # The last line may be half written; all that precede it are whole.
        whole = self.audit_log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def audit_event(self, audit_id: str) -> Json:
        """The event of the request that carried this `Audit-ID` header, awaited."""
        found: list[Json] = []

        def written() -> bool:
            found.extend(event for event in self.audit_events() if event["auditID"] == audit_id)
            return bool(found)

        self._apiserver.await_that(written)
        return found[0]

    def _close(self) -> None:
        # Their remaining output is not needed.
        self._client.close()
        self._apiserver.kill()
        self._etcd.kill()
        self._port.close()

    def _is_ready(self) -> bool:
        # /readyz goes by what it last heard of etcd; the namespace is read from etcd itself.
        paths = ("/readyz", "/api/v1/namespaces/kube-system")
        try:
            return all(self.request("GET", path, timeout=5).status == 200 for path in paths)
        except httpx.TransportError:
            return False

    def _etcd_is_healthy(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_TIMEOUT_SECONDS)
            try:
                connection.connect(str(self._etcd_http))
                connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                return b" 200 OK" in connection.recv(64)
            except OSError:
                return False

    def _new_client(self) -> httpx.Client:
        trust = ssl.create_default_context(cafile=self.ca_file)
        return httpx.Client(base_url=self.url, verify=trust, trust_env=False)

    def kubeconfig_of(self, user: str, group: str = "") -> Path:
        """Return a kubeconfig with a client certificate for a user of the control plane."""
        name = user.replace(":", "-")
        pem = self._client_certificate(user, group, self.directory / f"{name}.pem")
        credentials = {"client-certificate": str(pem), "client-key": str(pem)}
        return self.write_kubeconfig(self.directory / f"{name}.kubeconfig", credentials)

    def write_kubeconfig(
        self,
        path: Path,
        user: Json | None = None,
        *,
        namespace: str = "",
        other_contexts: Mapping[str, str] | None = None,
        **cluster: Any,
    ) -> Path:
        """Write a kubeconfig, of the administrator if `user` is None, and return its path.

        `other_contexts` maps names of contexts, beside the current one, to their namespaces.
        `cluster` has other fields of the cluster.
        """
        fields = {"server": self.url, "certificate-authority": str(self.ca_file), **cluster}
        contexts = {"tests": namespace, **(other_contexts or {})}
        both = {"cluster": "tests", "user": "admin"}
        configuration = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": fields}],
            "users": [{"name": "admin", "user": user or {"token": self.token}}],
            "contexts": [
                {"name": name, "context": both | ({"namespace": inside} if inside else {})}
                for name, inside in contexts.items()
            ],
            "current-context": "tests",
        }
        path.write_text(json.dumps(configuration, indent=2))
        return path

    def _client_certificate(self, user: str, group: str, path: Path) -> Path:
        # Go refuses a certificate with an empty list of names, which trustme makes without one.
        made = self._ca.issue_cert("client.test", common_name=user, organization_name=group or None)
        made.private_key_and_cert_chain_pem.write_to_path(path)
        return path

    def _write_configuration(self) -> None:
        ca = self._ca
        ca.cert_pem.write_to_path(self.ca_file)
        ca.private_key_pem.write_to_path(self.ca_key_file)
        serving = ca.issue_cert(*{self.address, LOOPBACK, "localhost", *_SERVICE_NAMES})
        serving.private_key_and_cert_chain_pem.write_to_path(self.directory / "serving.pem")
        accounts = ca.issue_cert("service-accounts.test")
        accounts.private_key_pem.write_to_path(self.service_account_key_file)
        self._client_certificate(
            "kube-apiserver-kubelet-client", "system:masters", self.directory / "to-kubelets.pem"
        )
        tokens = f'{self.token},admin,admin,"system:masters"\n'
        (self.directory / "tokens.csv").write_text(tokens)
        (self.directory / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY))
        self.write_kubeconfig(self.kubeconfig)
        self.audit_log.touch()

    def _etcd_flags(self) -> list[str]:
        return [
            f"--data-dir={self.directory}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls={self.etcd_url}",
            f"--listen-client-http-urls=unix://{self._etcd_http}",
            # No client uses it, and it must not be a socket.
            "--advertise-client-urls=http://localhost:2379",
            f"--listen-peer-urls=unix://{self.directory}/peers.sock",
            "--log-level=warn",
        ]

    def _apiserver_flags(self) -> list[str]:
        here = self.directory
        return [
            f"--etcd-servers={self.etcd_url}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            *self._flags_for_nodes(),
            f"--secure-port={self.port}",
            "--permit-port-sharing",
            f"--tls-cert-file={here}/serving.pem",
            f"--tls-private-key-file={here}/serving.pem",
            f"--client-ca-file={self.ca_file}",
            f"--token-auth-file={here}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged",
            f"--service-account-issuer={_ISSUER}",
            f"--service-account-key-file={self.service_account_key_file}",
            f"--service-account-signing-key-file={self.service_account_key_file}",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            f"--audit-policy-file={here}/audit-policy.json",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-mode=blocking",
        ]

    def _flags_for_nodes(self) -> list[str]:
        if self.address == LOOPBACK:
            # The endpoints of the Service `kubernetes` may not be on the loopback address.
            return ["--endpoint-reconciler-type=none"]
        pem = self.directory / "to-kubelets.pem"
        return [
            f"--kubelet-client-certificate={pem}",
            f"--kubelet-client-key={pem}",
            f"--kubelet-certificate-authority={self.ca_file}",
            # No DNS knows the names of nodes.
            "--kubelet-preferred-address-types=InternalIP",
        ]


def _decoded(answer: httpx.Response) -> Json:
    # By its looks: the Status of a request that timed out is announced as plain text.
    if answer.text.startswith("{"):
        decoded: Json = answer.json()
        return decoded
    return {"text": answer.text}


def _warnings(answer: httpx.Response) -> list[str]:
    found = _WARNING.findall(", ".join(answer.headers.get_list("Warning")))
    return [re.sub(r"\\(.)", r"\1", text) for text in found]
