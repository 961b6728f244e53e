"""What to do about a symptom: the upgrade that makes it unnecessary, or the policy that helps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import yaml

from webhook.core.cluster.nodes import Node
from webhook.core.constants import API_VERSION, KIND, LABEL_NAMESPACE_NAME
from webhook.core.defects.defect import Defect
from webhook.core.remedies import REMEDIES

_MAX_NAMESPACES = 50
"""The maximum number of namespaces in a policy that a scan proposes."""


def upgrade_advice(defect: Defect, node: Node) -> str:
    """Return the upgrade that cures a node. Empty if podsettle knows none."""
    release = defect.cure_for(node.runtime, node.kubelet)
    if release is None:
        return ""
    software = "kubelet" if defect.component == "kubelet" else node.runtime.name
    return f"Upgrade {software} on node {node.name} to {release} or later."


def proposed_remedy(defect: Defect) -> str | None:
    """Return the remedy that a proposed policy has. None if podsettle has none for the defect.

    A remedy whose settings have to name containers cannot be proposed.
    """
    return next(
        (name for name in defect.remedies if REMEDIES[name].proposed_settings is not None), None
    )


def policy_for(
    remedy: str, namespaces: Iterable[str], pod_labels: Mapping[str, str] | None = None
) -> str:
    """Return a policy with one remedy for the pods of some namespaces, as YAML.

    A comment says how many namespaces the policy leaves out.
    """
    found = sorted(namespaces)
    names, left_out = found[:_MAX_NAMESPACES], found[_MAX_NAMESPACES:]
    spec: dict[str, object] = {
        "namespaceSelector": {
            "matchExpressions": [{"key": LABEL_NAMESPACE_NAME, "operator": "In", "values": names}]
        },
        "remedies": {remedy: REMEDIES[remedy].proposed_settings},
    }
    if pod_labels:
        spec["podSelector"] = {"matchLabels": dict(pod_labels)}
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": f"settle-{remedy.lower()}"},
        "spec": spec,
    }
    text: str = yaml.safe_dump(document, sort_keys=False, width=100)
    if left_out:
        # A label of the namespaces is easier to keep up to date than a long list.
        text = (
            f"# Not among the names: {len(left_out)} more namespaces, from {left_out[0]} on. Add "
            f"them, or select\n# all {len(found)} by a label.\n{text}"
        )
    return text


def advice_for(defect: Defect, namespaces: int) -> str:
    """Return what to do about a defect that pods of so many namespaces suffer from."""
    remedy = proposed_remedy(defect)
    if remedy is None:
        return defect.advice
    before = (
        " Configure the nodes first: `podsettle node-config`."
        if REMEDIES[remedy].needs_node_configuration
        else ""
    )
    pods = "new pods"
    if namespaces > _MAX_NAMESPACES:
        pods += f" of {_MAX_NAMESPACES} of the {namespaces} namespaces"
    return f"{defect.advice} The policy below applies {remedy} to {pods}.{before}"
