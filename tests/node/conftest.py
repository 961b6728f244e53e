"""Fixtures of tests on a real node: they run inside the namespaces of `make node`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.node.containerd import Containerd
from tests.support.node.deliveries import Settled
from tests.support.node.inside import OUTSIDE, is_inside
from tests.support.node.node import RealNode
from tests.support.node.node_pool import NodePool


@pytest.fixture(scope="session")
def nodes() -> Iterator[NodePool]:
    """All nodes. A test that changes a node's runtime or kubelet takes one of its own."""
    # Before a runtime's constructor builds images, which takes minutes.
    if not is_inside():
        pytest.fail(OUTSIDE, pytrace=False)
    pool = NodePool()
    yield pool
    pool.stop()


@pytest.fixture(scope="module")
def node(nodes: NodePool) -> RealNode:
    """The node that modules share, with the newest containerd."""
    return nodes.shared(Containerd("2.4"))


@pytest.fixture
def namespace(node: RealNode) -> str:
    """A namespace for the pods of one test."""
    return node.namespace("test-")


@pytest.fixture(scope="module")
def settled(node: RealNode) -> Settled:
    """The same node with podsettle, and a namespace for each delivery of postInitSleep."""
    return Settled.on(node)
