"""One node at a time for many tests: all nodes in the namespaces use the same paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.support.node.containerd import Containerd
from tests.support.node.crio import Crio
from tests.support.node.node import RealNode
from tests.support.node.runtime import Runtime
from tools.crio import module_build

NEWEST: Mapping[str, Callable[[], Runtime]] = {
    "containerd": lambda: Containerd("2.4"),
    "CRI-O": lambda: Crio(module_build()),
}
"""The newest release of each runtime."""


class NodePool:
    """The node that tests share, or one that a test has for itself."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._shared: RealNode | None = None

    def shared(self, runtime: Runtime) -> RealNode:
        """Return a running node with a runtime of this name and release, or start one."""
        wanted = (runtime.name, runtime.version)
        node = self._shared
        if node is None or (node.runtime.name, node.runtime.version) != wanted:
            self.stop()
            self._shared = self._stack.enter_context(RealNode.start(runtime))
        assert self._shared is not None
        return self._shared

    @contextmanager
    def own(self, runtime: Runtime, **options: Any) -> Iterator[RealNode]:
        """Run a node for one test or module, in place of the shared one."""
        self.stop()
        with RealNode.start(runtime, **options) as node:
            yield node

    def stop(self) -> None:
        """Stop the shared node."""
        self._shared = None
        self._stack.close()
