"""`podsettle wait` and `podsettle logs -f` on a real kubelet, also one without a certificate."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kubelet_status import running
from tests.support.live_cluster import environment_with
from tests.support.node.node import RealNode
from tests.support.node.serving_certificate import ServingCertificate, unapproved_certificate
from tests.support.process import podsettle

STEP = "step"
# A busy machine needs longer than a kubelet of a cloud for its certificate, or for a restart.
BACKOFF = ("--backoff-total", "3m")


@pytest.fixture
def certificate(node: RealNode) -> Iterator[ServingCertificate]:
    """The serving certificate, for which the kubelet waits."""
    with unapproved_certificate(node) as found:
        yield found


def create_step(node: RealNode, namespace: str, lines: int, pause_seconds: float) -> None:
    """Create a pod whose container prints numbered lines and ends with 7."""
    script = (
        f"n=0; while [ $n -lt {lines} ]; do echo line $n; n=$((n+1)); sleep {pause_seconds}; done; "
        "exit 7"
    )
    container = {"name": STEP, "image": node.images.busybox, "command": ["sh", "-c", script]}
    metadata = {"name": STEP, "namespace": namespace}
    node.create_pod(
        {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [container]}}
    )


def text(lines: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(lines))


def wait(node: RealNode, namespace: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = environment_with(node.cluster.kubeconfig)
    return podsettle("wait", STEP, "-n", namespace, *options, env=environment)


def test_log_is_complete_when_the_serving_certificate_is_approved_late(
    node: RealNode, namespace: str, certificate: ServingCertificate, tmp_path: Path
) -> None:
    create_step(node, namespace, lines=10, pause_seconds=0.5)
    follow = ("logs", STEP, "-f", "-n", namespace, *BACKOFF)
    with running(node.cluster.kubeconfig, tmp_path, *follow) as command:
        command.await_word("remote error: tls: internal error", times=2)
        assert command.stdout == b""
        assert not certificate.is_issued
        certificate.approve()
        assert command.end() == 0
    assert command.stdout == text(10)


def test_exit_code_is_returned_while_the_serving_certificate_is_missing(
    node: RealNode, namespace: str, certificate: ServingCertificate
) -> None:
    """`wait` reads the pod's status, and needs no connection to the kubelet."""
    create_step(node, namespace, lines=2, pause_seconds=0.5)
    ended = wait(node, namespace, "-o", "json")
    assert not certificate.is_issued
    assert ended.returncode == 7
    told = json.loads(ended.stdout)
    assert (told["pod"], told["container"], told["exitCode"]) == (STEP, STEP, 7)
    assert told["reason"] == "Error"


def test_log_is_complete_and_without_repetition_when_the_kubelet_restarts_while_it_is_followed(
    node: RealNode, namespace: str, tmp_path: Path
) -> None:
    lines = 200
    create_step(node, namespace, lines, pause_seconds=0.1)
    follow = ("logs", STEP, "-f", "-n", namespace, *BACKOFF)
    with running(node.cluster.kubeconfig, tmp_path, *follow) as command:
        command.await_output(b"line 20\n")
        node.kubelet.stop()
        node.kubelet.start()
        assert command.stdout != text(lines)
        assert command.end() == 0
    assert command.stdout == text(lines)
    assert wait(node, namespace).returncode == 7
