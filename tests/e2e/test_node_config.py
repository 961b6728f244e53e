"""The RuntimeClasses of `podsettle node-config` on a real API server."""

from __future__ import annotations

import pytest
import yaml

from tests.support.kube.cluster import KubeCluster
from tests.support.node_config import CONTAINERD, CRIO, printed


@pytest.mark.parametrize("arguments", [CRIO, (*CRIO, "--node-selector", "a=b"), CONTAINERD])
def test_api_server_accepts_the_printed_runtime_class(
    cluster: KubeCluster, arguments: tuple[str, ...]
) -> None:
    made = yaml.safe_load(printed(*arguments, "-o", "runtimeclass"))
    path = "/apis/node.k8s.io/v1/runtimeclasses?dryRun=All"
    answer = cluster.request("POST", path, made)
    assert answer.status == 201, answer.body
    assert answer.body.get("scheduling") == made.get("scheduling")
