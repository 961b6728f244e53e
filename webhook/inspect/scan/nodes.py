"""The nodes by runtime and kubelet, the defects that they have, and the policies they hold up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from webhook.core.cluster.nodes import Node
from webhook.core.cluster.remedy_need import survey
from webhook.core.cluster.view import ClusterView
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.defect import Defect
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.still_needed import all_nodes, remedy_needs
from webhook.inspect.scan.model import DefectNodes, NodeDefect, NodeGroup, PolicyNeed

_MAX_NAMES = 5
"""The maximum number of names of nodes in a group, because people read them."""


def node_groups(nodes: Iterable[Node]) -> tuple[NodeGroup, ...]:
    """Return the nodes by runtime and kubelet. The largest group comes first."""
    by_software: dict[tuple[str, str], list[Node]] = {}
    for node in nodes:
        runtime = str(node.runtime) if node.runtime.name else "no runtime reported"
        by_software.setdefault((runtime, str(node.kubelet or "?")), []).append(node)
    groups = [
        NodeGroup(
            runtime=runtime,
            kubelet=kubelet,
            count=len(group),
            names=tuple(sorted(node.name for node in group)[:_MAX_NAMES]),
            defects=tuple(_node_defect(group[0], defect) for defect in DEFECTS),
        )
        for (runtime, kubelet), group in by_software.items()
    ]
    return tuple(sorted(groups, key=lambda group: (-group.count, group.runtime, group.kubelet)))


def _node_defect(node: Node, defect: Defect) -> NodeDefect:
    release = defect.cure_for(node.runtime, node.kubelet)
    component = "kubelet" if defect.component == "kubelet" else node.runtime.name
    cured_by = f"{component} {release}" if release is not None else ""
    return NodeDefect(defect.id, node.status_for(defect), cured_by)


def defect_nodes(
    nodes: Sequence[Node], policies: Iterable[SettlePolicy]
) -> tuple[DefectNodes, ...]:
    """Return for each defect the numbers of nodes, and the policies with a remedy for it."""
    settings = [(policy.metadata.name, policy.spec) for policy in policies]
    result = []
    for defect in DEFECTS:
        found = survey(nodes, defect)
        curing = tuple(
            name
            for name, spec in settings
            if spec.action == "Mutate" and not set(defect.remedies).isdisjoint(spec.settings())
        )
        result.append(
            DefectNodes(
                defect=defect.id,
                title=defect.title,
                affected=len(found.affected),
                partly=len(found.partly),
                not_affected=len(found.not_affected),
                unverified=len(found.unverified),
                remedies=defect.remedies,
                policies=curing,
                page=defect.page or "",
            )
        )
    return tuple(result)


def policy_needs(policies: Iterable[SettlePolicy], view: ClusterView) -> tuple[PolicyNeed, ...]:
    """Return whether the nodes still need each remedy of each policy, and which nodes do."""
    nodes = all_nodes(view)
    return tuple(
        PolicyNeed(policy.metadata.name, remedy, "True", "no release that podsettle knows cures it")
        if need is None
        else PolicyNeed(policy.metadata.name, remedy, need.status, need.message)
        for policy in policies
        for remedy, need in remedy_needs(policy, nodes).items()
    )
