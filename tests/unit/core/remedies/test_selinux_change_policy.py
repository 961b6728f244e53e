from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    Json,
    decide_pod,
    mutate_pod,
    node,
    patched,
    pod,
    policy,
    reasons,
    view,
)
from webhook.core.defects.versions import Version
from webhook.core.policy.snapshot import Snapshot

NEW = Version(1, 36)


def make_view(*nodes: Json, server: Version | None = NEW) -> Snapshot:
    remedies: Json = {"seLinuxChangePolicy": "Recursive"}
    return view(policy(remedies=remedies), nodes=nodes, server=server)


@pytest.mark.parametrize(
    "security",
    ["absent", None, {}, {"seLinuxChangePolicy": None}, {"fsGroup": 5, "x-new": {"a": [1]}}],
)
def test_missing_value_is_set_and_other_fields_are_kept(security: Any) -> None:
    before = pod() if security == "absent" else pod(securityContext=security)
    decision = decide_pod(before, make_view())
    assert reasons(decision) == ["Applied"]
    after = patched(before, decision)
    applied = {
        "podsettle.dev/applied": "p/seLinuxChangePolicy",
        "podsettle.dev/settled": "1/0/0/0",
        "podsettle.dev/summary": "The pod is set to seLinuxChangePolicy Recursive, by policy p.",
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
def test_existing_value_is_kept(value: str, reason: str) -> None:
    decision = decide_pod(pod(securityContext={"seLinuxChangePolicy": value}), make_view())
    assert reasons(decision) == [reason]
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
def test_remedy_needs_a_server_that_supports_the_field(server: Version | None, reason: str) -> None:
    decision = decide_pod(pod(), make_view(server=server))
    assert reasons(decision) == [reason]
    assert len(decision.warnings) == (reason == "ServerTooOld")


@pytest.mark.parametrize(
    ("kubelet", "reason"), [("v1.33.1", "Applied"), ("v1.32.9", "ServerTooOld")]
)
def test_kubelets_decide_if_the_server_version_is_unknown(kubelet: str, reason: str) -> None:
    nodes = [node("old", kubelet="v1.30.0"), node("new", kubelet=kubelet), node("odd", kubelet="")]
    assert reasons(decide_pod(pod(), make_view(*nodes, server=None))) == [reason]


def test_known_server_version_counts_before_kubelet_versions() -> None:
    look = make_view(node(kubelet="v1.36.0"), server=Version(1, 30))
    assert reasons(decide_pod(pod(), look)) == ["ServerTooOld"]


@pytest.mark.parametrize(
    "spec",
    [
        {"os": {"name": "windows"}},
        {"nodeSelector": {"kubernetes.io/os": "windows"}},
        {"securityContext": {"windowsOptions": {"hostProcess": True}}},
    ],
)
def test_windows_pod_is_unchanged(spec: Json) -> None:
    decision = decide_pod(pod(**spec), make_view())
    assert reasons(decision) == ["WindowsPod"]
    assert decision.operations == ()


def test_second_call_changes_nothing() -> None:
    assert decide_pod(mutate_pod(pod(), make_view()), make_view()).operations == ()
