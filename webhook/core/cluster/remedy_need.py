"""The question whether a set of nodes still needs a remedy, answered from the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import Literal, NamedTuple

from webhook.core.cluster.nodes import Node, Pool
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


def survey(pools: Iterable[Pool], defect: Defect) -> dict[DefectStatus, list[Node]]:
    """Return the nodes of pools by what they have of a defect.

    All nodes of a pool have the same of it. To judge each one takes too long for the event loop.
    """
    by_status: dict[DefectStatus, list[Node]] = {status: [] for status in DefectStatus}
    for pool in pools:
        by_status[pool.nodes[0].status_for(defect)] += pool.nodes
    return by_status


def remedy_need(
    remedy: str, pools: Sequence[Pool], defects: Iterable[Defect], description: str = ""
) -> Need | None:
    """Return whether nodes need a remedy, or None if no release makes the remedy unnecessary.

    `pools` are the nodes, and `defects` is the catalogue. `description` is a phrase that names the
    set of nodes in messages, such as ` of RuntimeClass fast`. None also stands for a remedy that
    cures no defect of the catalogue, because its purpose is not known. Remedies that cure the same
    defects get equal results. Nodes with Windows do not count.
    """
    with_linux = " with Linux" if any(pool.os == "windows" for pool in pools) else ""
    pools = [pool for pool in pools if pool.os != "windows"]
    cured = [defect for defect in defects if remedy in defect.remedies]
    if not cured or not all(defect.can_end for defect in cured):
        return None
    if not pools:
        return Need("Unknown", "NoNodes", f"no node{description}{with_linux} is known")
    surveys = [(defect, survey(pools, defect)) for defect in cured]
    total = f"{sum(len(pool.nodes) for pool in pools)} nodes{description}"
    affected = [
        _affected_message(found[DefectStatus.AFFECTED], defect, total)
        for defect, found in surveys
        if found[DefectStatus.AFFECTED]
    ]
    if affected:
        return Need("True", "NodesAreAffected", "; ".join(affected))
    partly = [
        (defect.partly, len(found[DefectStatus.PARTLY_AFFECTED]))
        for defect, found in surveys
        if defect.partly is not None and found[DefectStatus.PARTLY_AFFECTED]
    ]
    if partly:
        message = "; ".join(f"on {count} of {total}, {rest.message}" for rest, count in partly)
        return Need("Unknown", partly[0][0].reason, message)
    unreported = [node for pool in pools if not pool.runtime.name for node in pool.nodes]
    if unreported and any(defect.component != "kubelet" for defect in cured):
        verb = "reports" if len(unreported) == 1 else "report"
        listed = _list_first(unreported, attrgetter("name"))
        message = f"{len(unreported)} of {total} {verb} no runtime: {listed}"
        return Need("Unknown", "RuntimeNotReported", message)
    software = " or ".join(dict.fromkeys(defect.runs for defect in cured))
    message = f"none of {total} runs {software}"
    # Defects of one runtime often have the same nodes.
    later = dict.fromkeys(
        list_nodes(found[DefectStatus.UNVERIFIED], defect)
        for defect, found in surveys
        if found[DefectStatus.UNVERIFIED]
    )
    if later:
        message += f"; podsettle does not know the releases of {' and '.join(later)} yet"
    return Need("False", "NodesAreFixed", message)


def _affected_message(nodes: Sequence[Node], defect: Defect, total: str) -> str:
    verb = "runs" if len(nodes) == 1 else "run"
    software, partly = defect.runs, defect.partly
    if partly is not None:
        software += f" below Kubernetes {partly.kubelet.major}.{partly.kubelet.minor}"
    return f"{len(nodes)} of {total} still {verb} {software}: {list_nodes(nodes, defect)}"


def list_nodes(nodes: Collection[Node], defect: Defect) -> str:
    """Return the first nodes by name, and the number of the others.

    Each has the release that decides whether it has the defect.
    """
    return _list_first(nodes, lambda node: f"{node.name} ({node.software_of(defect)})")


def _list_first(nodes: Collection[Node], text: Callable[[Node], str]) -> str:
    first = nsmallest(_MAX_NAMED, nodes, key=attrgetter("name"))
    return list_first([*map(text, first)], _MAX_NAMED, count=len(nodes))
