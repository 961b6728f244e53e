"""The nodes that the pods of a policy could land on, and the remedies that these nodes need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from webhook.core.cluster.nodes import Pool
from webhook.core.cluster.remedy_need import Need, remedy_need
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.defects.defect import Defect


@dataclass(frozen=True, slots=True)
class PolicyNodes:
    """The nodes that the pods of a policy could land on.

    Many policies have the same remedies, so each answer about all nodes is computed once.
    """

    pools: tuple[Pool, ...]
    defects: tuple[Defect, ...]
    """The catalogue by which the nodes are judged."""
    runtime_classes: Mapping[str, RuntimeClassInfo]
    description: str = ""
    """A phrase for messages that names the set of nodes. Empty for all nodes of the cluster."""
    _by_class: dict[str, PolicyNodes] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _by_remedy: dict[str, Need | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def of_class(self, name: str) -> PolicyNodes:
        """Return the nodes that a RuntimeClass's nodeSelector matches.

        Return the same nodes if the class does not exist or has no nodeSelector.
        """
        runtime_class = self.runtime_classes.get(name)
        if runtime_class is None or not runtime_class.node_selector:
            return self
        if name not in self._by_class:
            required_labels = runtime_class.node_selector.items()
            chosen = (
                replace(pool, nodes=nodes)
                for pool in self.pools
                if (
                    nodes := [each for each in pool.nodes if required_labels <= each.labels.items()]
                )
            )
            self._by_class[name] = PolicyNodes(
                tuple(chosen), self.defects, self.runtime_classes, f" of RuntimeClass {name}"
            )
        return self._by_class[name]

    def with_label(self, key: str, value: str) -> Need:
        """Return whether a remedy that is only for nodes with a label is needed."""
        label = f"the label {key}={value}"
        nodes = [node for pool in self.pools for node in pool.nodes]
        if not nodes:
            return Need("Unknown", "NoNodes", f"no node{self.description} is known")
        total = f"{len(nodes)} nodes{self.description}"
        count = sum(node.labels.get(key) == value for node in nodes)
        if not count:
            return Need("False", "NodesAreFixed", f"none of {total} has {label}")
        verb = "has" if count == 1 else "have"
        return Need("True", "NodesAreAffected", f"{count} of {total} still {verb} {label}")

    def need(self, remedy: str) -> Need | None:
        """Return whether the nodes need a remedy, by the catalogue of defects.

        Return None if no known release makes the remedy unnecessary.
        """
        if remedy not in self._by_remedy:
            self._by_remedy[remedy] = remedy_need(
                remedy, self.pools, self.defects, self.description
            )
        return self._by_remedy[remedy]
