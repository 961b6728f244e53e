"""Whether a policy's remedies are still needed on the nodes, for the condition StillNeeded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from webhook.core.cluster.nodes import Node
from webhook.core.cluster.runtime_classes import RuntimeClassInfo

NeedStatus: TypeAlias = Literal["True", "False", "Unknown"]

_MAX_NAMED_NODES = 5
"""The maximum number of nodes in a message, because people read it in a terminal."""


class Need(NamedTuple):
    """Whether a remedy is still needed, and why."""

    status: NeedStatus
    reason: str
    message: str
    """The reason in words. It begins with a small letter and has no full stop."""


@dataclass(frozen=True, slots=True)
class PolicyNodes:
    """The nodes that the pods of a policy could land on."""

    all: tuple[Node, ...]
    runtime_classes: Mapping[str, RuntimeClassInfo]
    description: str = ""
    """A phrase for messages that names the set of nodes. Empty for all nodes of the cluster."""

    def of_class(self, name: str) -> PolicyNodes:
        """Return the nodes that a RuntimeClass's nodeSelector matches.

        Return the same nodes if the class does not exist or has no nodeSelector.
        """
        runtime_class = self.runtime_classes.get(name)
        if runtime_class is None or not runtime_class.node_selector:
            return self
        required_labels = runtime_class.node_selector.items()
        nodes = tuple(node for node in self.all if required_labels <= node.labels.items())
        return PolicyNodes(nodes, self.runtime_classes, f" of RuntimeClass {name}")

    def need(self, is_affected: Callable[[Node], bool], what: str) -> Need:
        """Return whether a remedy is needed: whether a node is affected.

        `what` names the affected software, for the message.
        """
        count = len(self.all)
        if not count:
            return Need("Unknown", "NoNodes", f"no node{self.description} is known")
        affected = [node for node in self.all if is_affected(node)]
        if not affected:
            message = f"none of {count} nodes{self.description} runs {what}"
            return Need("False", "NodesAreFixed", message)
        verb = "runs" if len(affected) == 1 else "run"
        message = f"{len(affected)} of {count} nodes{self.description} still {verb} {what}"
        return Need("True", "NodesAreAffected", f"{message}: {_list_nodes(affected)}")


def _list_nodes(nodes: Iterable[Node]) -> str:
    by_name = sorted(nodes, key=lambda node: node.name)
    left = len(by_name) - _MAX_NAMED_NODES
    listed = ", ".join(f"{node.name} ({node.runtime})" for node in by_name[:_MAX_NAMED_NODES])
    return listed + (f" and {left} more" if left > 0 else "")
