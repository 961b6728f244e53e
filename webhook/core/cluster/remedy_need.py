"""The question whether a set of nodes still needs a remedy, answered from the catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from webhook.core.cluster.nodes import Node
from webhook.core.defects.defect import Defect, DefectStatus
from webhook.core.printable import list_first

_MAX_NAMED = 5
"""The maximum number of nodes in a message, because people read it in a terminal."""


class Need(NamedTuple):
    """Whether a set of nodes needs a remedy, in the form of a condition of KEP-1623."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    """A clause without a capital and a period, such as `none of 2 nodes runs CRI-O`."""


NEED_PHRASES: Mapping[str, str] = {
    "True": "still needed",
    "False": "no longer needed",
    "Unknown": "perhaps still needed",
}
"""The status of a need for people, by its value."""


class Survey(NamedTuple):
    """A set of nodes, by what they have of one defect."""

    defect: Defect
    affected: tuple[Node, ...]
    partly: tuple[Node, ...]
    unverified: tuple[Node, ...]
    """The nodes that are not affected, but run a later release than podsettle knows."""
    not_affected: tuple[Node, ...]


def survey(nodes: Iterable[Node], defect: Defect) -> Survey:
    """Return the nodes by what they have of a defect."""
    by_status: dict[DefectStatus, list[Node]] = {status: [] for status in DefectStatus}
    for node in nodes:
        by_status[node.status_for(defect)].append(node)
    return Survey(
        defect,
        tuple(by_status[DefectStatus.AFFECTED]),
        tuple(by_status[DefectStatus.PARTLY_AFFECTED]),
        tuple(by_status[DefectStatus.UNVERIFIED]),
        tuple(by_status[DefectStatus.NOT_AFFECTED]),
    )


def remedy_need(
    remedy: str, nodes: Sequence[Node], defects: Iterable[Defect], description: str = ""
) -> Need | None:
    """Return whether nodes need a remedy, or None if no release makes the remedy unnecessary.

    `defects` is the catalogue. `description` is a phrase that names the set of nodes in messages,
    such as ` of RuntimeClass fast`. None also stands for a remedy that cures no defect of the
    catalogue, because its purpose is not known. Remedies that cure the same defects get equal
    results.
    """
    cured = [defect for defect in defects if remedy in defect.remedies]
    if not cured or not all(defect.can_end for defect in cured):
        return None
    if not nodes:
        return Need("Unknown", "NoNodes", f"no node{description} is known")
    surveys = [survey(nodes, defect) for defect in cured]
    total = f"{len(nodes)} nodes{description}"
    if affected := [each for each in surveys if each.affected]:
        message = "; ".join(_affected_message(each, total) for each in affected)
        return Need("True", "NodesAreAffected", message)
    partly = [
        (each.defect.partly, len(each.partly))
        for each in surveys
        if each.defect.partly is not None and each.partly
    ]
    if partly:
        message = "; ".join(f"on {count} of {total}, {rest.message}" for rest, count in partly)
        return Need("Unknown", partly[0][0].reason, message)
    unreported = [node for node in nodes if not node.runtime.name]
    if unreported and any(defect.component != "kubelet" for defect in cured):
        verb = "reports" if len(unreported) == 1 else "report"
        listed = list_first(sorted(node.name for node in unreported), _MAX_NAMED)
        message = f"{len(unreported)} of {total} {verb} no runtime: {listed}"
        return Need("Unknown", "RuntimeNotReported", message)
    software = " or ".join(dict.fromkeys(defect.runs for defect in cured))
    message = f"none of {total} runs {software}"
    # Defects of one runtime often have the same nodes.
    later = dict.fromkeys(
        list_nodes(each.unverified, each.defect) for each in surveys if each.unverified
    )
    if later:
        message += f"; podsettle does not know the releases of {' and '.join(later)} yet"
    return Need("False", "NodesAreFixed", message)


def _affected_message(found: Survey, total: str) -> str:
    verb = "runs" if len(found.affected) == 1 else "run"
    software, partly = found.defect.runs, found.defect.partly
    if partly is not None:
        software += f" below Kubernetes {partly.kubelet.major}.{partly.kubelet.minor}"
    nodes = list_nodes(found.affected, found.defect)
    return f"{len(found.affected)} of {total} still {verb} {software}: {nodes}"


def list_nodes(nodes: Iterable[Node], defect: Defect) -> str:
    """Return the first nodes by name, and the number of the others.

    Each has the release that decides whether it has the defect.
    """
    ordered = sorted(nodes, key=lambda node: node.name)
    return list_first([f"{each.name} ({each.software_of(defect)})" for each in ordered], _MAX_NAMED)
