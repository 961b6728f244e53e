"""`linger wait-kubelet` against Go's TLS server, in a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.linger_process import READY, logged_line
from tests.support.tls_listeners import Listener

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", ["VersionTLS12", "VersionTLS13"])
def test_go_tls_accepts_the_client_hello_for_each_tls_version(linger: Path, version: str) -> None:
    """The kubelet and the kube-apiserver both use Go's crypto/tls."""
    with KubeCluster.start(f"--tls-min-version={version}") as cluster:
        line = logged_line(linger, Listener("127.0.0.1", cluster.port))
        assert line == f"the kubelet at 127.0.0.1 {READY}"
