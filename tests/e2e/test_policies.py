"""A policy as an object of a real cluster, and namespaces that were created a moment ago."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.e2e_pods import is_called
from tests.support.helm_release import policy
from tests.support.kube.cluster import KubeCluster
from tests.support.policy_objects import POLICIES, install_crd
from tests.support.process import RunningServer, start_server
from tests.support.registered_webhook import registered
from tests.support.waiting import await_that


@pytest.fixture(scope="module")
def own() -> Iterator[KubeCluster]:
    with KubeCluster.start() as cluster:
        install_crd(cluster)
        yield cluster


@pytest.fixture(scope="module")
def server(own: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    certs = tmp_path_factory.mktemp("certs")
    image = ("--linger-image", "registry.example/linger:1")
    with (
        start_server(None, certs, *image, kubeconfig=own.kubeconfig) as found,
        registered(own, "podsettle", f"{found.url}/mutate", found.ca.read_bytes()),
    ):
        yield found


@pytest.mark.usefixtures("server")
def test_pod_created_right_after_its_namespace_is_settled(own: KubeCluster) -> None:
    own.create(POLICIES, policy("everywhere", namespaceSelector={}))
    await_that(lambda: is_called(own), "the policy is in force")
    for _ in range(20):
        assert is_called(own, own.namespace("young-"))
    own.request("DELETE", f"{POLICIES}/everywhere")
