"""The nodes by runtime and kubelet, the defects that they have, and the policies they hold up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from webhook.core.cluster.nodes import Node
from webhook.core.cluster.view import ClusterView
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.defect import Defect, DefectStatus
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.still_needed import all_nodes, remedy_needs
from webhook.inspect.scan.model import POSSIBLE, DefectNodes, NodeDefect, NodeGroup, PolicyNeed


def node_groups(nodes: Iterable[Node]) -> tuple[NodeGroup, ...]:
    """Return the nodes by runtime and kubelet. The largest group comes first."""
    by_software: dict[tuple[str, str], list[Node]] = {}
    for node in nodes:
        by_software.setdefault(software_of(node), []).append(node)
    groups = [
        NodeGroup(
            runtime=runtime,
            kubelet=kubelet,
            count=len(group),
            names=tuple(sorted(node.name for node in group)),
            defects=tuple(
                NodeDefect(defect.id, _status(group[0], defect), _cure(group[0], defect))
                for defect in DEFECTS
            ),
        )
        for (runtime, kubelet), group in by_software.items()
    ]
    return tuple(sorted(groups, key=lambda group: (-group.count, group.runtime, group.kubelet)))


def software_of(node: Node) -> tuple[str, str]:
    """Return the runtime and the kubelet of a node, for people."""
    runtime = str(node.runtime) if node.runtime.name else "no runtime reported"
    return runtime, str(node.kubelet or "?")


def _status(node: Node, defect: Defect) -> str:
    status = node.status_for(defect)
    is_possible = defect.requires is not None and status is DefectStatus.AFFECTED
    return POSSIBLE if is_possible else status.value


def _cure(node: Node, defect: Defect) -> str:
    release = defect.cure_for(node.runtime, node.kubelet)
    component = "kubelet" if defect.component == "kubelet" else node.runtime.name
    return f"{component} {release}" if release is not None else ""


def defect_nodes(
    nodes: Sequence[Node], curing: Mapping[str, tuple[str, ...]]
) -> tuple[DefectNodes, ...]:
    """Return for each defect the numbers of nodes.

    `curing` has the policies that cure a defect in pods that were found, by the defect's id.
    """
    result = []
    for defect in DEFECTS:
        counts = Counter(_status(node, defect) for node in nodes)
        result.append(
            DefectNodes(
                defect=defect.id,
                title=defect.title,
                affected=counts[DefectStatus.AFFECTED],
                possible=counts[POSSIBLE],
                partly=counts[DefectStatus.PARTLY_AFFECTED],
                not_affected=counts[DefectStatus.NOT_AFFECTED],
                unverified=counts[DefectStatus.UNVERIFIED],
                remedies=defect.remedies,
                policies=curing.get(defect.id, ()),
                page=page_of(defect),
                requires=defect.requires or "",
            )
        )
    return tuple(result)


def page_of(defect: Defect) -> str:
    """Return the address of the page about a defect. Empty if there is none."""
    return f"docs/{defect.page}" if defect.page else ""


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
