"""`kubeletGate` on a kubelet whose serving certificate is approved late.

The gate is a container of the pod that tries the real port 10250, as on a node that has just
joined a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.support.kube.cluster import Json
from tests.support.node.containerd import Containerd
from tests.support.node.node import RealNode
from tests.support.node.node_pool import NodePool
from tests.support.node.pods import all_ended, exit_codes, pod_path, states
from tests.support.node.serving_certificate import ServingCertificate, unapproved_certificate
from tests.support.process import start_server
from tests.support.registered_webhook import registered
from tests.support.waiting import await_that

GATE = "podsettle-kubelet-gate"
POLICIES = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: gate}
spec:
  namespaceSelector: {}
  podSelector: {matchLabels: {gate: long}}
  remedies:
    kubeletGate: {timeout: 1m}
---
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: short-gate}
spec:
  namespaceSelector: {}
  podSelector: {matchLabels: {gate: short}}
  remedies:
    kubeletGate: {timeout: 3s}
"""
REFUSED = "no serving certificate available for the kubelet"


@pytest.fixture(scope="module")
def node(nodes: NodePool) -> Iterator[RealNode]:
    """A node without the chart's webhook, which other modules leave on the shared one."""
    with nodes.own(Containerd("2.4")) as own:
        yield own


@pytest.fixture(scope="module")
def gated(node: RealNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A namespace in which a policy gives pods a gate, by podsettle as a webhook."""
    manifests, certs = tmp_path_factory.mktemp("manifests"), tmp_path_factory.mktemp("certs")
    (manifests / "policies.yaml").write_text(POLICIES)
    options = ("--linger-image", node.images.linger)
    with (
        start_server(manifests, certs, *options) as server,
        registered(node.cluster, "podsettle", f"{server.url}/mutate", server.ca.read_bytes()),
    ):
        made = node.namespace("gated-")

        def is_called() -> bool:
            probe = {
                "metadata": {"name": "probe", "namespace": made, "labels": {"gate": "long"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            }
            answer = node.cluster.create_pod(probe, dry_run=True)
            return "initContainers" in answer.body.get("spec", {})

        await_that(is_called, "the API server calls podsettle")
        yield made


@pytest.fixture
def certificate(node: RealNode) -> Iterator[ServingCertificate]:
    """The serving certificate, for which the kubelet waits."""
    with unapproved_certificate(node) as found:
        yield found


def step(node: RealNode, namespace: str, gate: str) -> str:
    """Create a pod as a CI system does, and return its name."""
    container = {"name": "step", "image": node.images.busybox, "command": ["echo", "built"]}
    name = f"step-{gate or 'ungated'}"
    metadata = {"name": name, "namespace": namespace, "labels": {"gate": gate}}
    node.create_pod(
        {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [container]}}
    )
    return name


def is_gated(pod: Json) -> bool:
    return "running" in states(pod).get(GATE, {})


def test_gated_pod_stays_pending_until_the_serving_certificate_is_approved(
    node: RealNode, gated: str, certificate: ServingCertificate
) -> None:
    before = node.kubelet.log.read_text(errors="replace").count(REFUSED)
    name = step(node, gated, "long")
    node.await_pod(gated, name, is_gated)

    def refusals() -> int:
        return node.kubelet.log.read_text(errors="replace").count(REFUSED) - before

    await_that(lambda: refusals() >= 4, "the kubelet refuses handshakes of the gate")
    waiting = node.pod(gated, name)
    assert waiting["status"]["phase"] == "Pending"
    assert is_gated(waiting)
    assert not certificate.is_issued
    certificate.approve()
    ended = node.await_pod(gated, name, all_ended)
    assert exit_codes(ended) == {GATE: 0, "step": 0}
    assert certificate.is_issued
    log = node.logs(gated, name, GATE)
    assert "is ready: it begins a TLS handshake" in log
    # The client's first attempt succeeds.
    assert node.logs(gated, name, "step") == "built\n"


def test_gate_ends_at_its_timeout_and_the_pod_runs_without_a_certificate(
    node: RealNode, gated: str, certificate: ServingCertificate
) -> None:
    name = step(node, gated, "short")
    ended = node.await_pod(gated, name, all_ended)
    assert exit_codes(ended) == {GATE: 0, "step": 0}
    assert not certificate.is_issued
    gate = states(ended)[GATE]["terminated"]
    began, finished = (datetime.fromisoformat(gate[key]) for key in ("startedAt", "finishedAt"))
    # The default is 30 s.
    assert 2 <= (finished - began).total_seconds() < 20
    certificate.issue()
    log = node.logs(gated, name, GATE)
    assert "has no serving certificate yet (TLS alert 80); continuing without it" in log


def test_log_of_a_pod_without_a_gate_is_refused_while_the_certificate_is_missing(
    node: RealNode, gated: str, certificate: ServingCertificate
) -> None:
    """The symptom of the report. Without it, the other tests would show nothing."""
    name = step(node, gated, "")
    ended = node.await_pod(gated, name, all_ended)
    assert exit_codes(ended) == {"step": 0}
    path = f"{pod_path(gated, name)}/log"
    status, answer, _ = node.cluster.request("GET", path)
    assert status == 500
    assert "remote error: tls: internal error" in answer["message"]
    certificate.issue()
    assert node.logs(gated, name, "step") == "built\n"
