"""What to do about a symptom: the upgrade that makes it unnecessary, or the policy that helps."""

from __future__ import annotations

from webhook.core.cluster.nodes import Node
from webhook.core.defects.defect import Defect
from webhook.core.remedies import REMEDIES
from webhook.inspect.scan.model import PolicyPreview, count_of


def upgrade_advice(defect: Defect, node: Node) -> str:
    """Return the upgrade that cures a node. Empty if podsettle knows none."""
    release = defect.cure_for(node.runtime, node.kubelet)
    if release is None:
        return ""
    software = "kubelet" if defect.component == "kubelet" else node.runtime.name
    return f"Upgrade {software} on node {node.name} to {release} or later."


def advice_for(defect: Defect, preview: PolicyPreview | None) -> str:
    """Return what to do about a defect that pods suffer from."""
    if preview is None:
        return defect.advice
    return " ".join([defect.advice, *policy_sentences(preview)])


def policy_sentences(preview: PolicyPreview) -> list[str]:
    """Return what policies do for the pods that were found, in sentences."""
    sentences = [
        f"Policy {each.text} has a remedy for {count_of(each.pods, 'pod')} like these."
        for each in preview.in_force
    ]
    if preview.changes and preview.is_audited:
        sentences.append(
            f"A policy with {preview.remedy} is in the cluster already. It {preview.phrase}, once "
            "you delete `action: Audit` there."
        )
    elif preview.changes:
        sentences.append(f"The proposed policy has {preview.remedy}, and {preview.phrase}.")
    if preview.warning:
        sentences.append(f"{preview.warning}.")
    sentences += [
        f"It leaves {count_of(each.pods, 'pod')} unchanged: {each.text}."
        if preview.changes
        else f"A policy with {preview.remedy} would leave {count_of(each.pods, 'pod')} unchanged: "
        f"{each.text}."
        for each in preview.unchanged
    ]
    configuration = REMEDIES[preview.remedy].node_configuration
    if configuration and not preview.in_force:
        sentences.append(f"Configure the nodes first: `{configuration}`.")
    return sentences
