"""Tests of podsettle with Woodpecker's own client, before the client had its retries.

The client is built from a clone: `make node WOODPECKER_SOURCE=DIR`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Timer

import pytest

from tests.support.node.node import RealNode
from tests.support.node.node_pool import NEWEST, NodePool
from tests.support.node.serving_certificate import unapproved_certificate
from tests.support.node.woodpecker import Woodpecker
from tests.support.process import start_server
from tests.support.registered_webhook import registered
from tests.support.waiting import await_that
from tools.woodpecker import BEFORE_LOG_RETRY, BEFORE_STATUS_RETRY, SOURCE, find_woodpecker
from webhook.core.constants import ANNOTATION_APPLIED

# A pod of the namespace `woodpecker` has the gate by the policy of docs/kubelet-gate.md.
GATED, PLAIN = "woodpecker", "plain"
POLICY = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: logs-of-new-nodes}
spec:
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: woodpecker}}
  podSelector: {matchExpressions: [{key: step, operator: Exists}]}
  remedies:
    kubeletGate: {timeout: 1m}
"""
# Between the request and the approval, as in woodpecker#5550.
APPROVAL_SECONDS = 15.0
AT_ONCE = 4
REFUSED = "remote error: tls: internal error"
NO_STATE = "no terminated state found"
SHORT_STEPS = 5


def client_or_skip(commit: str) -> Path:
    """Return a client, or skip the test."""
    program = find_woodpecker(commit)
    if program is None:
        pytest.skip(
            f"Woodpecker {commit[:9]} is not built: {SOURCE}=DIR python -m tools.woodpecker"
        )
    return program


@pytest.fixture(scope="module", params=[*NEWEST])
def node(
    request: pytest.FixtureRequest, nodes: NodePool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealNode]:
    """A node on which podsettle gives the pods of one namespace the gate."""
    client_or_skip(BEFORE_LOG_RETRY)
    manifests, certs = tmp_path_factory.mktemp("manifests"), tmp_path_factory.mktemp("certs")
    (manifests / "policy.yaml").write_text(POLICY)
    with ExitStack() as stack:
        own = stack.enter_context(nodes.own(NEWEST[request.param]()))
        options = ("--linger-image", own.images.linger)
        server = stack.enter_context(start_server(manifests, certs, *options))
        url, ca = f"{server.url}/mutate", server.ca.read_bytes()
        stack.enter_context(registered(own.cluster, "podsettle", url, ca))
        for name in (GATED, PLAIN):
            own.namespace(name)

        def is_called() -> bool:
            probe = {
                "metadata": {"name": "probe", "namespace": GATED, "labels": {"step": "probe"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            }
            answer = own.cluster.create_pod(probe, dry_run=True)
            return ANNOTATION_APPLIED in answer.body.get("metadata", {}).get("annotations", {})

        await_that(is_called, "the API server calls podsettle")
        yield own


@pytest.mark.parametrize("namespace", [PLAIN, GATED])
def test_pipelines_on_a_new_node_fail_only_without_the_gate(
    node: RealNode, namespace: str, tmp_path: Path
) -> None:
    client = Woodpecker(client_or_skip(BEFORE_LOG_RETRY), node, namespace, tmp_path)
    with unapproved_certificate(node) as certificate:
        timer = Timer(APPROVAL_SECONDS, certificate.approve)
        timer.start()
        try:
            runs = client.run("late", AT_ONCE)
        finally:
            timer.join()
    outputs = [run.output for run in runs]
    if namespace == PLAIN:
        assert [run.exit_code for run in runs] == [1] * AT_ONCE, outputs
        assert all(REFUSED in output for output in outputs), outputs
    else:
        assert [run.exit_code for run in runs] == [0] * AT_ONCE, outputs
        assert all("built 0" in output for output in outputs), outputs


def test_short_steps_of_the_client_without_a_status_retry_succeed(
    node: RealNode, tmp_path: Path
) -> None:
    client = Woodpecker(client_or_skip(BEFORE_STATUS_RETRY), node, PLAIN, tmp_path)
    runs = client.run("short", 2, steps=SHORT_STEPS)
    outputs = [run.output for run in runs]
    assert not any(NO_STATE in output for output in outputs), outputs
    assert [run.exit_code for run in runs] == [0, 0], outputs
    assert all(output.count("built") >= SHORT_STEPS for output in outputs), outputs
