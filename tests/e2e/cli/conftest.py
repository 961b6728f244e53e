"""Fixtures: a cluster with nodes, a namespace and a policy, and users with few rights in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.factories import policy_document
from tests.support.kube.cluster import KubeCluster
from tests.support.live_cluster import add_node, environment_with
from tests.support.policy_objects import POLICIES, install_crd


@pytest.fixture(scope="session")
def live_cluster() -> Iterator[KubeCluster]:
    """A cluster with an affected node and a fixed one. Tests choose new names for objects."""
    with KubeCluster.start() as cluster:
        install_crd(cluster)
        for name, runtime in (("worker-1", "cri-o://1.33.12"), ("worker-2", "cri-o://1.36.0")):
            add_node(cluster, name, runtime)
        cluster.namespace("ci", labels={"team": "build"})
        selector = {"matchLabels": {"team": "build"}}
        cluster.create(POLICIES, policy_document("in-cluster", namespaceSelector=selector))
        yield cluster


@pytest.fixture
def admin(live_cluster: KubeCluster) -> dict[str, str]:
    """The environment of a user who may do everything."""
    return environment_with(live_cluster.kubeconfig)
