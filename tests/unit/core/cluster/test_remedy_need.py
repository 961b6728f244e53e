"""Tests of the question whether a set of nodes still needs a remedy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.defects import defect, entry
from webhook.core.cluster.nodes import Node, Nodes
from webhook.core.cluster.remedy_need import Need, remedy_need, survey
from webhook.core.defects.defect import Defect, DefectStatus

PARTLY = {
    "kubelet": "1.37.0",
    "reason": "VolumesNotSeen",
    "message": "some volumes are slow",
    "link": "https://example.org/1",
}


def nodes(*runtimes: str, kubelet: str = "v1.34.0") -> tuple[Node, ...]:
    return tuple(
        Node.read(f"n{number}", {}, runtime, kubelet) for number, runtime in enumerate(runtimes)
    )


def need_of(
    remedy: str, found: Iterable[Node], defects: Iterable[Defect], description: str = ""
) -> Need | None:
    return remedy_need(remedy, Nodes(found).pools, defects, description)


def need(found: Iterable[Node], defects: Iterable[Defect], description: str = "") -> Need:
    """Return whether the nodes need postInitSleep."""
    needed = need_of("postInitSleep", found, defects, description)
    assert needed is not None
    return needed


def crio(**keys: Any) -> Defect:
    return defect(entry("1.33.13", newest="1.36.0"), runs="an affected CRI-O", **keys)


KUBELET = defect(entry("1.34.2", newest="1.36.0", component="kubelet"), runs="an affected kubelet")
CONTAINERD = defect(
    entry("2.1.0", component="containerd", newest="2.1.0"),
    id="other",
    runs="an affected containerd",
)
OLD, NEW, LATER = "cri-o://1.33.12", "cri-o://1.36.0", "cri-o://1.37.0"


def test_survey_sorts_nodes_by_what_they_have_of_a_defect() -> None:
    every = (*nodes(OLD, NEW, LATER), Node.read("n3", {}, OLD, "v1.37.0"))
    found = survey(Nodes(every).pools, crio(partly=PARTLY))
    assert {status: [node.name for node in found[status]] for status in DefectStatus} == {
        DefectStatus.AFFECTED: ["n0"],
        DefectStatus.NOT_AFFECTED: ["n1"],
        DefectStatus.UNVERIFIED: ["n2"],
        DefectStatus.PARTLY_AFFECTED: ["n3"],
    }


def test_nodes_with_a_defect_of_the_kubelet_are_named_with_its_release() -> None:
    old = (*nodes(NEW, kubelet="v1.34.1"), Node.read("n1", {}, NEW, "broken"))
    needed = need(old, [KUBELET])
    assert needed.message == (
        "2 of 2 nodes still run an affected kubelet: n0 (kubelet 1.34.1), n1 (kubelet ?)"
    )
    not_needed = need(nodes(LATER, kubelet="v1.37.0"), [crio(), KUBELET])
    assert (not_needed.status, not_needed.reason) == ("False", "NodesAreFixed")
    assert not_needed.message.endswith(
        "; podsettle does not know the releases of n0 (cri-o 1.37.0) and n0 (kubelet 1.37.0) yet"
    )


def test_nodes_with_windows_do_not_count() -> None:
    windows = Node.read("w", {"kubernetes.io/os": "windows"}, "containerd://2.0.0", "v1.34.0")
    windows_need = need((*nodes(NEW), windows), [crio(), CONTAINERD])
    message = "none of 1 nodes runs an affected CRI-O or an affected containerd"
    assert windows_need == Need("False", "NodesAreFixed", message)
    windows_need = need([windows], [crio()], " of RuntimeClass fast")
    message = "no node of RuntimeClass fast with Linux is known"
    assert windows_need == Need("Unknown", "NoNodes", message)


def test_need_is_unknown_while_a_node_reports_no_runtime() -> None:
    assert need(nodes(NEW, ""), [crio()], " of RuntimeClass x") == (
        "Unknown",
        "RuntimeNotReported",
        "1 of 2 nodes of RuntimeClass x reports no runtime: n1",
    )
    many = need(nodes(NEW, *[""] * 7), [crio()])
    assert many.message == "7 of 8 nodes report no runtime: n1, n2, n3, n4, n5 and 2 more"
    assert need(nodes(OLD, ""), [crio()]).status == "True"
    # The kubelet's defects do not depend on the runtime.
    assert need(nodes("", kubelet="v1.34.2"), [KUBELET]).status == "False"


def test_remedy_for_two_defects_is_needed_while_nodes_have_one_of_them() -> None:
    both = [crio(), CONTAINERD]
    assert need(nodes(OLD, "containerd://2.0.0", NEW), both) == (
        "True",
        "NodesAreAffected",
        "1 of 3 nodes still runs an affected CRI-O: n0 (cri-o 1.33.12); "
        "1 of 3 nodes still runs an affected containerd: n1 (containerd 2.0.0)",
    )
    one = need(nodes(NEW, "containerd://2.0.0"), both)
    assert one.message == "1 of 2 nodes still runs an affected containerd: n1 (containerd 2.0.0)"
    assert need(nodes(NEW, "containerd://2.1.0"), both) == (
        "False",
        "NodesAreFixed",
        "none of 2 nodes runs an affected CRI-O or an affected containerd",
    )


def test_partly_affected_nodes_leave_the_need_unknown() -> None:
    partly = [crio(partly=PARTLY)]
    fast = nodes(OLD, NEW, kubelet="v1.37.0")
    assert need(fast, partly, " of RuntimeClass x") == (
        "Unknown",
        "VolumesNotSeen",
        "on 1 of 2 nodes of RuntimeClass x, some volumes are slow",
    )
    found = need(nodes(OLD), partly)
    assert found.message == (
        "1 of 1 nodes still runs an affected CRI-O below Kubernetes 1.37: n0 (cri-o 1.33.12)"
    )


@pytest.mark.parametrize(
    ("remedy", "defects"),
    [
        ("kubeletGate", []),
        ("kubeletGate", [crio()]),
        ("postInitSleep", [defect(entry(component="kubelet"))]),
        ("postInitSleep", [crio(), defect(entry(component="kubelet"))]),
    ],
)
def test_remedy_that_no_release_makes_unnecessary_has_no_answer(
    remedy: str, defects: list[Defect]
) -> None:
    assert need_of(remedy, nodes(NEW), defects) is None
    assert need_of(remedy, (), defects) is None


def test_nodes_with_equal_releases_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of nodes are judged in one iteration of the event loop."""
    many = [Node.read(f"n{n:03}", {"a": str(n)}, (OLD, NEW)[n % 2], "v1.34.0") for n in range(400)]
    pools = Nodes(many).pools
    judged: list[str] = []
    status_for = Node.status_for

    def count(node: Node, about: Defect) -> DefectStatus:
        judged.append(node.name)
        return status_for(node, about)

    monkeypatch.setattr(Node, "status_for", count)
    need = remedy_need("postInitSleep", pools, [crio(), CONTAINERD])
    assert need is not None
    assert need.message == (
        "200 of 400 nodes still run an affected CRI-O: n000 (cri-o 1.33.12), n002 (cri-o 1.33.12), "
        "n004 (cri-o 1.33.12), n006 (cri-o 1.33.12), n008 (cri-o 1.33.12) and 195 more"
    )
    assert len(judged) == 2 * len(pools) == 4
