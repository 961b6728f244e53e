"""A release of the chart on a real API server, and podsettle with exactly the rights that it gives.

There is no kubelet: podsettle runs as a process of this machine, with the arguments of the
Deployment and a token of the ServiceAccount. In place of a cluster's controllers, this writes the
Service's EndpointSlices and Endpoints; that is why podsettle listens on an address of this machine
that is not a loopback one, which no endpoint may have.
"""

from __future__ import annotations

import base64
import fcntl
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from tests.support.factories import Json, policy_document
from tests.support.helm import NAMESPACE, run
from tests.support.kube.cluster import KubeCluster
from tests.support.markdown import Page, blocks_of
from tests.support.paths import CHART, DOCS, ROOT
from tests.support.process import PODSETTLE, free_port
from tests.support.waiting import TIMEOUT_SECONDS, await_that
from tools.build import programs, tool

RELEASE = "podsettle"
WEBHOOK_TIMEOUT_SECONDS = 10
"""Longer than the chart's 2 s, for which a machine may stall: the pod would be left unchanged."""
REQUIRED = (
    "--set=image.repository=registry.example/podsettle,lingerImage=registry.example/linger:0.2.0,"
    f"webhook.timeoutSeconds={WEBHOOK_TIMEOUT_SECONDS}"
)
"""The required values, and the longer timeout."""
QUIET = "--set=drain.quiet=4s"
"""A short idle time at shutdown."""
FAIL = ("--set=webhook.failurePolicy=Fail", QUIET)
HOST = f"{RELEASE}.{NAMESPACE}.svc"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
CONFIGURATION = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{RELEASE}"
POLICIES = "/apis/podsettle.dev/v1alpha1/settlepolicies"
OWN = f"/api/v1/namespaces/{NAMESPACE}"
ROUTING = "--enable-aggregator-routing=true"
"""To a Service's endpoints, since nothing here makes its address lead there."""
OPT_IN, BY_SELECTOR = "opt-in.podsettle.dev", "cluster.podsettle.dev"


def policy(name: str, **spec: Any) -> Json:
    """Return a policy that always acts, in namespaces that choose it unless `spec` has others."""
    found = {"namespaceSelector": None, "remedies": {"postInitSleep": {"when": "Always"}}} | spec
    return policy_document(name, **found)


def own_address() -> str:
    """Return an address of this machine other than 127.0.0.1. Sends nothing.

    The API server refuses endpoints with loopback addresses, so without a default route, the
    address is one of an interface.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            address: str = probe.getsockname()[0]
        except OSError:
            address = _address_of_an_interface(probe)
    return address


_SIOCGIFADDR = 0x8915  # netdevice(7)


def _address_of_an_interface(probe: socket.socket) -> str:
    for _, name in socket.if_nameindex():
        request = struct.pack("256s", name.encode()[:15])
        with suppress(OSError):  # an interface without an address
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            address = socket.inet_ntoa(answer[20:24])
            if not address.startswith("127."):
                return address
    raise AssertionError(
        "this machine has no IPv4 address but loopback, and the API server refuses that one for "
        "endpoints: ip link add dummy0 type dummy; ip address add 198.51.100.1/32 dev dummy0"
    )


class Installation:
    """A release on a cluster, and its running replicas."""

    def __init__(self, cluster: KubeCluster, directory: Path) -> None:
        self.cluster = cluster
        self.replicas: list[Replica] = []
        self._directory = directory
        self._numbers = count()
        self.admitted: list[Replica] = []
        """The replicas behind the Service."""

    @cached_property
    def address(self) -> str:
        """Where the replicas listen that run as processes of this machine."""
        return own_address()

    def helm(self, *arguments: str | Path) -> str:
        """Run helm as the administrator. It must succeed without a warning."""
        done = run("helm", *arguments, "--namespace", NAMESPACE, kubeconfig=self.cluster.kubeconfig)
        assert done.returncode == 0, done.stderr
        # Lines of klog's level "info" are no warnings. client-go 1.37 logs each watch that it ends.
        # An older chart brings the Lease, which podsettle has created.
        expected = r"I\d{4} |.*using cluster state as baseline.* kind=Lease$"
        warnings = [line for line in done.stderr.splitlines() if not re.match(expected, line)]
        assert not warnings, done.stderr
        return done.stdout

    def install(self, *flags: str, chart: Path = CHART) -> None:
        """Install the release in its namespace, with the required values and no replica yet."""
        notes = self.helm("install", RELEASE, chart, REQUIRED, *flags, "--create-namespace")
        assert "STATUS: deployed" in notes
        self.cluster.namespace(NAMESPACE)

    def start_ready(self, *mounted: str, **options: Any) -> Replica:
        """Start a replica with options of `launch`. It is behind the Service once it is ready."""
        replica = self.launch(*mounted, **options)
        await_that(replica.is_ready, f"{replica.log} is ready")
        self.admit(replica)
        return replica

    def get(self, path: str) -> Json:
        status, body, _ = self.cluster.request("GET", path)
        assert status == 200, body
        return body

    def webhooks(self) -> dict[str, Json]:
        """The entries of the webhook configuration by their names."""
        return {each["name"]: each for each in self.get(CONFIGURATION).get("webhooks", ())}

    def written_by_podsettle(self) -> dict[str, object]:
        """The CA bundles, the certificates and the Lease: what an upgrade has to leave alone."""
        lease = self.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RELEASE}")
        bundles = {n: each["clientConfig"]["caBundle"] for n, each in self.webhooks().items()}
        return {
            **bundles,
            "certificates": self.get(f"{OWN}/secrets/{RELEASE}-tls").get("data"),
            "holder": lease.get("spec", {}).get("holderIdentity"),
        }

    def left(self) -> list[str]:
        """What carries the release's name or labels, of every kind that there is."""
        not_the_release_s = ("APIService", "Endpoints", "EndpointSlice", "Namespace", "Pod")
        found = []
        for group in self._api_groups():
            # A group that has just gone is still listed for a moment.
            for resource in self.cluster.request("GET", group).body.get("resources", ()):
                if "list" not in resource["verbs"] or resource["name"] == "events":
                    continue
                status, body, _ = self.cluster.request("GET", f"{group}/{resource['name']}")
                if status != 200:
                    # Discovery lists a kind for a moment after its CRD is gone.
                    found.append(f"{resource['kind']}: {status} {body.get('message', '')}")
                for each in body.get("items") or ():
                    name, labels = each["metadata"]["name"], each["metadata"].get("labels", {})
                    ours = (
                        labels.get("app.kubernetes.io/instance") == RELEASE or "podsettle" in name
                    )
                    # What has an owner goes by garbage collection, for which nothing runs here.
                    ours = ours and not each["metadata"].get("ownerReferences")
                    if ours and resource["kind"] not in not_the_release_s:
                        found.append(f"{resource['kind']} {name}")
        return sorted(set(found))

    def _api_groups(self) -> list[str]:
        groups = self.get("/apis")["groups"]
        versions = (each["preferredVersion"]["groupVersion"] for each in groups)
        return ["/api/v1", *(f"/apis/{version}" for version in versions)]

    def start(self, *mounted: str) -> Replica:
        """Start a replica, behind the Service at once, with flags for certificates it mounts."""
        replica = self.launch(*mounted)
        self.admit(replica)
        return replica

    def launch(
        self,
        *mounted: str,
        sources: Path | None = None,
        prefix: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        api_server: Json | None = None,
    ) -> Replica:
        """The same, but not behind the Service yet; of other sources, where these are given.

        `prefix` stands in front of the command, and has to end in the same process. `variables` are
        further ones of the environment. `api_server` has other fields for the kubeconfig's cluster.
        """
        deployment = self.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}")
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        kubeconfig = self._directory / f"kubeconfig-{next(self._numbers)}"
        # With the rights of the chart's ServiceAccount only.
        user = {"token": self.cluster.token_for(RELEASE, NAMESPACE)}
        self.cluster.write_kubeconfig(kubeconfig, user, **(api_server or {}))
        environment, program = self._environment(pod), [PODSETTLE]
        if sources is not None:
            environment["PYTHONPATH"] = str(sources)
            program = [sys.executable, "-P", "-c", "from webhook.cli import main; main()"]
        environment |= variables or {}
        command = [*prefix, *program, *container["args"], *mounted]
        replica = Replica(self, command, kubeconfig, environment, deployment["spec"]["template"])
        self.replicas.append(replica)
        return replica

    def _environment(self, pod: Json) -> dict[str, str]:
        """The container's variables. What they name in a ConfigMap is written as the kubelet would,
        and named where it is here."""
        (container,) = pod["containers"]
        # The chart takes only the namespace from the downward API.
        found = {each["name"]: each.get("value", NAMESPACE) for each in container.get("env", ())}
        mounts = {each["name"]: each["mountPath"] for each in container.get("volumeMounts", ())}
        for volume in pod.get("volumes", ()):
            if "configMap" not in volume:
                continue
            directory = self._directory / volume["name"]
            directory.mkdir(exist_ok=True)
            data = self.get(f"{OWN}/configmaps/{volume['configMap']['name']}")["data"]
            for key, text in data.items():
                (directory / key).write_text(text)
            for name, value in found.items():
                found[name] = value.replace(mounts[volume["name"]], str(directory))
        return found

    def admit(self, replica: Replica) -> None:
        """Do the work of the controllers for EndpointSlices and Endpoints for a ready pod."""
        self.admitted.append(replica)
        assert self._write_endpoints() in (200, 201)
        self.cluster.create(
            f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices",
            {
                "metadata": {
                    "name": replica.pod_name,
                    "labels": {"kubernetes.io/service-name": RELEASE},
                },
                "addressType": "IPv4",
                "endpoints": [{"addresses": [self.address], "conditions": {"ready": True}}],
                "ports": [{"name": "https", "port": replica.port, "protocol": "TCP"}],
            },
        )

    def create_pod(self, replica: Replica, **spec: Any) -> None:
        """Create the pod of a ready replica, as its Deployment and its kubelet do."""
        container = {"name": "podsettle", "image": "registry.example/podsettle"}
        containers = [{**container, "ports": replica.named_ports}]
        metadata = {"name": replica.pod_name, "labels": replica.template["metadata"]["labels"]}
        spec |= {"serviceAccountName": RELEASE, "containers": containers}
        self.cluster.create(f"{OWN}/pods", {"metadata": metadata, "spec": spec})
        self.write_status(replica, ready=True)

    def write_status(self, replica: Replica, *, ready: bool) -> None:
        """Write whether the pod of a replica is ready, and where its process listens."""
        status = {
            "phase": "Running",
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "conditions": [{"type": "Ready", "status": str(ready)}],
        }
        path = f"{OWN}/pods/{replica.pod_name}/status"
        code, answer, _ = self.cluster.request("PATCH", path, {"status": status})
        assert code == 200, answer

    def delete_pod(self, name: str) -> None:
        """Delete what is left of a pod whose process has ended."""
        self.cluster.request("DELETE", f"{OWN}/pods/{name}?gracePeriodSeconds=0")

    def stop_all(self, how: signal.Signals) -> None:
        while self.replicas:
            replica = self.replicas.pop()
            replica.end(how)
            self.withdraw(replica)

    def retire(self, *replicas: Replica) -> None:
        """Treat replicas as deleted pods are: no endpoint any more, and time to end."""
        for replica in replicas:
            self.replicas.remove(replica)
            self.withdraw(replica)
            replica.signal(signal.SIGTERM)
        for replica in replicas:
            replica.await_end()

    def withdraw(self, replica: Replica) -> None:
        """Take a replica out of the Service's endpoints."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
        self.cluster.request("DELETE", f"{path}/{replica.pod_name}")
        if replica in self.admitted:
            self.admitted.remove(replica)
            self._write_endpoints()

    def _write_endpoints(self) -> int:
        """Write the Endpoints, by which an older API server resolves a Service."""
        ports = [[{"name": "https", "port": each.port}] for each in self.admitted]
        endpoints = {
            "metadata": {"name": RELEASE},
            "subsets": [{"addresses": [{"ip": self.address}], "ports": each} for each in ports],
        }
        return self.cluster.request("PUT", f"{OWN}/endpoints/{RELEASE}", endpoints).status

    def documented(self, page: str, heading: str, number: int = 0) -> str:
        """Return the command in a section of the documentation."""
        blocks = blocks_of(Page(DOCS / page).sections[heading])
        return [block.text for block in blocks if block.language == "sh"][number]

    def shell(self, script: str) -> str:
        """Run what the documentation says, with kubectl and helm as they are there."""
        done = subprocess.run(
            ["sh", "-eu", "-c", script],
            env={
                "PATH": f"{self._programs()}:{os.environ['PATH']}",
                "HOME": str(self._directory),
                "KUBECONFIG": str(self.cluster.kubeconfig),
            },
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _programs(self) -> str:
        kubectl = programs().kubectl
        assert kubectl
        return f"{kubectl.parent}:{tool('helm').parent}:{Path(PODSETTLE).parent}"


class Replica:
    """A process in place of a pod of the Deployment."""

    def __init__(
        self,
        of: Installation,
        command: list[str],
        kubeconfig: Path,
        environment: Mapping[str, str],
        template: Json,
    ) -> None:
        self.port = self.web_port = free_port()
        self.log = kubeconfig.with_suffix(".log")
        # All that a pod would not say: where it listens. The last one counts.
        here = [f"--host={of.address}", f"--port={self.port}"]
        # A replica of an older chart has one port.
        if any(each.startswith("--web-port=") for each in command):
            self.web_port = free_port()
            here.append(f"--web-port={self.web_port}")
        self.template = template
        """The pod template that it was started from."""
        own = {k: v for k, v in os.environ.items() if not k.startswith("PODSETTLE_")}
        with self.log.open("w") as output:
            self._process = subprocess.Popen(
                [*command, *here],
                stdout=output,
                stderr=output,
                env={**own, **environment, "KUBECONFIG": str(kubeconfig)},
            )
        self.pid = self._process.pid
        self.url = f"https://{of.address}:{self.port}"
        self._web_url = f"https://{of.address}:{self.web_port}"
        self._of = of

    @property
    def pod_name(self) -> str:
        """The name of its pod, and of its EndpointSlice."""
        return f"{RELEASE}-{self.port}"

    @property
    def named_ports(self) -> list[Json]:
        """The ports of its container, with the numbers that this process listens on."""
        (container,) = self.template["spec"]["containers"]
        own = {"https": self.port, "web": self.web_port}
        return [{**each, "containerPort": own[each["name"]]} for each in container["ports"]]

    def _url_of(self, path: str) -> str:
        """Return the address of the port that answers a path."""
        own = path in ("/livez", "/readyz") or path.startswith("/mutate")
        return self.url if own else self._web_url

    def request(
        self, method: str, path: str, *, token: str | None = None, content: object = None
    ) -> httpx.Response:
        """Ask it as the Service's clients do, with what the Secret says is to be trusted."""
        secret = self._of.get(f"{OWN}/secrets/{RELEASE}-tls")
        trust = ssl.create_default_context(
            cadata=base64.b64decode(secret["data"]["ca.crt"]).decode()
        )
        with httpx.Client(
            base_url=self._url_of(path), verify=trust, trust_env=False, timeout=TIMEOUT_SECONDS
        ) as client:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            return client.request(
                method, path, json=content, headers=headers, extensions={"sni_hostname": HOST}
            )

    def is_ready(self) -> bool:
        assert not self.has_ended, self.log.read_text()
        answer = self.ask("/readyz")
        return answer is not None and answer.status_code == 200

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def ask(
        self,
        path: str,
        *,
        token: str | None = None,
        content: bytes | None = None,
        seconds: float = TIMEOUT_SECONDS,
    ) -> httpx.Response | None:
        """Return the answer, or None without one, whatever certificate is shown.

        The request is a GET, or a POST of JSON if it has a content.
        """
        # A default context would load all CAs of this machine in each of many calls.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if content is not None:
            headers["Content-Type"] = "application/json"
        try:
            with httpx.Client(
                base_url=self._url_of(path), verify=context, trust_env=False, timeout=seconds
            ) as client:
                method = "GET" if content is None else "POST"
                return client.request(method, path, headers=headers, content=content)
        except httpx.TransportError:
            return None

    def end(self, how: signal.Signals) -> None:
        self.signal(how)
        self.await_end()

    def signal(self, which: signal.Signals) -> None:
        """Send a signal, and do not wait for its effect."""
        self._process.send_signal(which)

    def await_end(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        return self._process.wait(TIMEOUT_SECONDS)


@contextmanager
def installed(cluster: KubeCluster, directory: Path) -> Iterator[Installation]:
    """Return a place for a release, which is not installed yet."""
    installation = Installation(cluster, directory)
    try:
        yield installation
    finally:
        installation.stop_all(signal.SIGKILL)


@contextmanager
def released(
    directory: Path, *flags: str, replicas: int = 1, api_server: Iterable[str] = ()
) -> Iterator[Installation]:
    """Install a release with ready replicas on a cluster of its own, whose API server gets flags.

    `flags` are those of helm.
    """
    with (
        KubeCluster.start(ROUTING, *api_server) as cluster,
        installed(cluster, directory) as installation,
    ):
        installation.install(*flags)
        for _ in range(replicas):
            installation.start_ready()
        yield installation
