"""The lines of `podsettle check` that say which policies the nodes need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from webhook.core.cluster.nodes import Nodes
from webhook.core.cluster.remedy_need import list_nodes, survey
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.still_needed import all_nodes, still_needed

_ANSWERS = {
    "True": "still needed",
    "False": "no longer needed",
    "Unknown": "perhaps still needed",
}


def policy_need_lines(
    policies: Sequence[SettlePolicy],
    nodes: Nodes,
    runtime_classes: Mapping[str, RuntimeClassInfo],
) -> Iterator[str]:
    """Yield a line for each policy, and one for each defect with nodes of unknown releases.

    Without nodes, yield nothing, because it is not known what runs in the cluster.
    """
    if not nodes.all:
        return
    cluster = Snapshot(runtime_classes=runtime_classes, nodes=nodes)
    all_of_cluster = all_nodes(cluster)
    for policy in policies:
        need = still_needed(policy, all_of_cluster)
        yield f"{policy.metadata.name}: {_ANSWERS[need.status]}: {need.message}"
    remedies = {name for policy in policies for name in policy.spec.settings()}
    for defect in nodes.defects:
        if remedies.isdisjoint(defect.remedies):
            continue
        unverified = survey(nodes.all, defect).unverified
        if unverified:
            yield (
                f"{defect.id}: not affected, unverified: {list_nodes(unverified, defect)}; this "
                "podsettle does not know these releases yet"
            )
