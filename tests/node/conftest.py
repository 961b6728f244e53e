"""Fixtures of tests on a real node: they run inside the namespaces of `make node`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.node.deliveries import Settled
from tests.support.node.inside import OUTSIDE, is_inside
from tests.support.node.node import RealNode
from tests.support.node.node_pool import NEWEST, NodePool
from tests.support.node.runtime import Runtime

# Fixtures of the tests that leave the node as it is, those on the newest containerd first.
_SHARED = ("newest_node", "shared_node")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests on one node after another, because a node ends the one before it.

    The order of the kinds of tests is made later: see tests/support/selection.py.
    """

    def rank(item: pytest.Item) -> int:
        names = getattr(item, "fixturenames", ())
        return next((rank for rank, name in enumerate(_SHARED) if name in names), len(_SHARED))

    items.sort(key=rank)


@pytest.fixture(scope="session")
def nodes() -> Iterator[NodePool]:
    """All nodes. A test that changes a node's runtime or kubelet takes one of its own."""
    # Before a runtime's constructor builds images, which takes minutes.
    if not is_inside():
        pytest.fail(OUTSIDE, pytrace=False)
    pool = NodePool()
    yield pool
    pool.stop()


@pytest.fixture(scope="session")
def shared_node(nodes: NodePool) -> Callable[[Runtime], RealNode]:
    """A function that returns the node with a runtime that modules share."""
    return nodes.shared


@pytest.fixture(scope="module")
def newest_node(nodes: NodePool) -> RealNode:
    """The node that modules share, with the newest containerd."""
    return nodes.shared(NEWEST["containerd"]())


@pytest.fixture(scope="module")
def node(newest_node: RealNode) -> RealNode:
    """The node of a module. A module on another node replaces this fixture."""
    return newest_node


@pytest.fixture
def namespace(node: RealNode) -> str:
    """A namespace for the pods of one test."""
    return node.namespace("test-")


@pytest.fixture(scope="module")
def settled(node: RealNode) -> Settled:
    """The same node with podsettle, and a namespace for each delivery of postInitSleep."""
    return Settled.on(node)
