"""`startGate` on a node whose agent, network policies and DNS answer late.

Each program fails if what it needs does not answer. Without that, the tests would show nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from tests.support.kube.cluster import Json
from tests.support.node.containerd import Containerd
from tests.support.node.late_start import (
    AGENT_ADDRESS,
    AGENT_URL,
    NAME,
    PROGRAMS,
    SERVER,
    agent_after,
    late_for_new_pods,
)
from tests.support.node.node import RealNode
from tests.support.node.node_pool import NodePool
from tests.support.node.pods import all_ended, exit_codes
from tests.support.process import start_server
from tests.support.registered_webhook import registered
from tests.support.waiting import await_that
from webhook import __version__

GATE, KUBELET_GATE = "podsettle-start-gate", "podsettle-kubelet-gate"
POLICIES = f"""\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {{name: all}}
spec:
  namespaceSelector: {{}}
  podSelector: {{matchLabels: {{gate: all}}}}
  remedies:
    startGate:
      waitFor:
        - tcp: {AGENT_ADDRESS}:80
        - http: {AGENT_URL}
        - tcp: {SERVER}
        - dns: {NAME}
      timeout: 2m
---
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {{name: both}}
spec:
  namespaceSelector: {{}}
  podSelector: {{matchLabels: {{gate: both}}}}
  remedies:
    startGate: {{waitFor: [{{tcp: "{AGENT_ADDRESS}:80"}}], timeout: 2s}}
    kubeletGate: {{}}
"""


@pytest.fixture(scope="module")
def node(nodes: NodePool) -> Iterator[RealNode]:
    """A node without the chart's webhook, which other modules leave on the shared one."""
    with nodes.own(Containerd("2.4")) as own:
        yield own


@pytest.fixture(scope="module")
def gated(node: RealNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A namespace in which policies give pods gates, by podsettle as a webhook."""
    manifests, certs = tmp_path_factory.mktemp("manifests"), tmp_path_factory.mktemp("certs")
    (manifests / "policies.yaml").write_text(POLICIES)
    options = ("--linger-image", node.images.linger, "--linger-version", __version__)
    with (
        start_server(manifests, certs, *options) as server,
        registered(node.cluster, "podsettle", f"{server.url}/mutate", server.ca.read_bytes()),
    ):
        made = node.namespace("gated-")

        def is_called() -> bool:
            answer = node.cluster.create_pod(pod(node, made, "true", "all"), dry_run=True)
            return "initContainers" in answer.body.get("spec", {})

        await_that(is_called, "the API server calls podsettle")
        yield made


def pod(node: RealNode, namespace: str, script: str, gate: str) -> Json:
    container = {"name": "main", "image": node.images.busybox, "command": ["sh", "-c", script]}
    metadata = {"generateName": "pod-", "namespace": namespace, "labels": {"gate": gate}}
    return {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [container]}}


def ended(node: RealNode, namespace: str, script: str, gate: str) -> Json:
    """Run a pod until all its containers have ended."""
    name = node.create_pod(pod(node, namespace, script, gate))["metadata"]["name"]
    return node.await_pod(namespace, name, all_ended)


def late(node: RealNode, namespace: str, what: str, seconds: float) -> AbstractContextManager[None]:
    return agent_after(seconds) if what == "agent" else late_for_new_pods(node, namespace, seconds)


@pytest.mark.parametrize("what", PROGRAMS)
def test_program_fails_while_what_it_needs_does_not_answer(
    node: RealNode, gated: str, what: str
) -> None:
    with late(node, gated, what, 600):
        assert exit_codes(ended(node, gated, PROGRAMS[what], ""))["main"] != 0


def test_gated_pod_stays_pending_until_everything_answers_and_its_programs_succeed(
    node: RealNode, gated: str
) -> None:
    script = "\n".join(PROGRAMS.values())
    # The pod gets its address some seconds after its creation, on a busy machine.
    with agent_after(10), late_for_new_pods(node, gated, 8):
        finished = ended(node, gated, script, "all")
        name = finished["metadata"]["name"]
        log = node.logs(gated, name, GATE)
    assert exit_codes(finished) == {GATE: 0, "main": 0}, log
    assert log.count(" answers after ") == 4
    assert "timeout" not in log


def test_gate_ends_at_its_timeout_and_one_container_waits_for_the_kubelet_too(
    node: RealNode, gated: str
) -> None:
    finished = ended(node, gated, "true", "both")
    assert exit_codes(finished) == {KUBELET_GATE: 0, "main": 0}
    log = node.logs(gated, finished["metadata"]["name"], KUBELET_GATE)
    assert "is ready: it begins a TLS handshake" in log
    assert f"timeout: tcp {AGENT_ADDRESS}:80 cannot be reached: " in log
