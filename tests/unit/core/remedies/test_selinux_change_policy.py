from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import Json, decided, node, patched, pod, policy, settled, view, why
from webhook.cluster.snapshot import Snapshot
from webhook.core.defects.versions import Version

NEW = Version(1, 36)


def seen(*nodes: Json, server: Version | None = NEW) -> Snapshot:
    remedies: Json = {"seLinuxChangePolicy": "Recursive"}
    return view(policy(remedies=remedies), nodes=nodes, server=server)


@pytest.mark.parametrize(
    "security",
    ["absent", None, {}, {"seLinuxChangePolicy": None}, {"fsGroup": 5, "x-new": {"a": [1]}}],
)
def test_it_is_set_where_there_is_none_beside_what_is_there(security: Any) -> None:
    before = pod() if security == "absent" else pod(securityContext=security)
    decision = decided(before, seen())
    assert why(decision) == ["Applied"]
    after = patched(before, decision)
    applied = {
        "podsettle.dev/applied": "p/seLinuxChangePolicy",
        "podsettle.dev/settled": "1/0/0/0",
    }
    assert after["metadata"].pop("annotations") == applied
    had = security if isinstance(security, dict) else {}
    assert after["spec"].pop("securityContext") == {**had, "seLinuxChangePolicy": "Recursive"}
    before["spec"].pop("securityContext", None)
    assert after == before


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("Recursive", "AlreadySettled"),
        ("MountOption", "SELinuxChangePolicyPreset"),
        ("Newer", "SELinuxChangePolicyPreset"),
    ],
)
def test_a_value_that_is_there_is_kept(value: str, reason: str) -> None:
    decision = decided(pod(securityContext={"seLinuxChangePolicy": value}), seen())
    assert why(decision) == [reason]
    assert (decision.operations, decision.warnings) == ((), [])


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (Version(1, 32, 9), "ServerTooOld"),
        (Version(1, 33, 0, final=False), "ServerTooOld"),
        (None, "ServerTooOld"),
        (Version(1, 33), "Applied"),
        (Version(1, 37), "Applied"),
    ],
)
def test_an_older_server_would_drop_it(server: Version | None, reason: str) -> None:
    decision = decided(pod(), seen(server=server))
    assert why(decision) == [reason]
    assert len(decision.warnings) == (reason == "ServerTooOld")


@pytest.mark.parametrize(
    ("kubelet", "reason"), [("v1.33.1", "Applied"), ("v1.32.9", "ServerTooOld")]
)
def test_without_a_server_to_ask_its_nodes_tell(kubelet: str, reason: str) -> None:
    nodes = [node("old", kubelet="v1.30.0"), node("new", kubelet=kubelet), node("odd", kubelet="")]
    assert why(decided(pod(), seen(*nodes, server=None))) == [reason]


def test_a_server_that_can_be_asked_is_believed_before_its_nodes() -> None:
    look = seen(node(kubelet="v1.36.0"), server=Version(1, 30))
    assert why(decided(pod(), look)) == ["ServerTooOld"]


@pytest.mark.parametrize(
    "spec",
    [
        {"os": {"name": "windows"}},
        {"nodeSelector": {"kubernetes.io/os": "windows"}},
        {"securityContext": {"windowsOptions": {"hostProcess": True}}},
    ],
)
def test_windows_is_left_alone(spec: Json) -> None:
    decision = decided(pod(**spec), seen())
    assert why(decision) == ["WindowsPod"]
    assert decision.operations == ()


def test_a_settled_pod_needs_nothing_more() -> None:
    assert decided(settled(pod(), seen()), seen()).operations == ()
