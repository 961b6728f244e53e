"""Tests of the two remedies that set a change policy: of fsGroup and of SELinux."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    Json,
    decide_pod,
    node,
    patched,
    pod,
    policy,
    reasons,
    view,
)
from webhook.core.defects.versions import Version
from webhook.core.policy.snapshot import Snapshot

CLAIM: Json = {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}}
EPHEMERAL: Json = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}


def make_view() -> Snapshot:
    return view(policy(remedies={"fsGroupChangePolicy": "OnRootMismatch"}))


def pod_with(security: Json, *volumes: Json) -> Json:
    return pod(securityContext=security, volumes=[{"name": "tmp", "emptyDir": {}}, *volumes])


@pytest.mark.parametrize("volume", [CLAIM, EPHEMERAL], ids=["claim", "ephemeral claim"])
@pytest.mark.parametrize(
    "security",
    [
        {"fsGroup": 1000},
        {"fsGroup": 0},
        {"fsGroup": 1, "fsGroupChangePolicy": None},
        {"fsGroup": 1, "x-new": {"a": [1]}},
    ],
)
def test_pod_with_group_and_persistent_volume_gets_the_policy_and_keeps_all_else(
    security: Json, volume: Json
) -> None:
    before = pod_with(security, volume)
    decision = decide_pod(before, make_view())
    assert reasons(decision) == ["Applied"]
    after = patched(before, decision)
    assert after["metadata"].pop("annotations") == {
        "podsettle.dev/applied": "p/fsGroupChangePolicy",
        "podsettle.dev/settled": "1/0/2/0",
        "podsettle.dev/summary": "The pod is set to fsGroupChangePolicy OnRootMismatch, by policy "
        "p.",
    }
    assert after["spec"].pop("securityContext") == {
        **before["spec"].pop("securityContext"),
        "fsGroupChangePolicy": "OnRootMismatch",
    }
    assert after == before


@pytest.mark.parametrize(
    ("value", "reason"),
    [("OnRootMismatch", "AlreadySettled"), ("Always", "FieldPreset"), ("Newer", "FieldPreset")],
)
def test_value_that_the_pod_sets_is_kept(value: str, reason: str) -> None:
    security = {"fsGroup": 1000, "fsGroupChangePolicy": value}
    decision = decide_pod(pod_with(security, CLAIM), make_view())
    assert reasons(decision) == [reason]
    assert (decision.operations, decision.warnings) == ((), [])


@pytest.mark.parametrize("security", [None, {}, {"fsGroup": None}, {"runAsUser": 1000}])
def test_pod_without_a_group_is_unchanged(security: Any) -> None:
    decision = decide_pod(pod_with(security, CLAIM), make_view())
    assert reasons(decision) == ["NotApplicable"]
    assert (decision.operations, decision.warnings) == ((), [])


@pytest.mark.parametrize(
    "volume",
    [
        {"configMap": {"name": "a"}},
        {"csi": {"driver": "inline.example"}},
        {"persistentVolumeClaim": None},
        {"persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
    ],
)
def test_pod_without_a_claim_is_unchanged(volume: Json) -> None:
    before = pod_with({"fsGroup": 1000}, {"name": "data", **volume})
    decision = decide_pod(before, make_view())
    assert reasons(decision) == ["NoPersistentVolume"]
    assert (decision.operations, decision.warnings) == ((), [])


def test_group_of_a_container_does_not_count() -> None:
    """Kubernetes has no such field. The struct of the pod's fields is also that of a container."""
    before = pod_with({}, CLAIM)
    before["spec"]["containers"][0]["securityContext"] = {"fsGroup": 1000}
    assert reasons(decide_pod(before, make_view())) == ["NotApplicable"]


NEW = Version(1, 36)


def selinux_view(*nodes: Json, server: Version | None = NEW) -> Snapshot:
    remedies: Json = {"seLinuxChangePolicy": "Recursive"}
    return view(policy(remedies=remedies), nodes=nodes, server=server)


@pytest.mark.parametrize(
    "security",
    ["absent", None, {}, {"seLinuxChangePolicy": None}, {"fsGroup": 5, "x-new": {"a": [1]}}],
)
def test_missing_value_is_set_and_other_fields_are_kept(security: Any) -> None:
    before = pod() if security == "absent" else pod(securityContext=security)
    decision = decide_pod(before, selinux_view())
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
    decision = decide_pod(pod(securityContext={"seLinuxChangePolicy": value}), selinux_view())
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
    decision = decide_pod(pod(), selinux_view(server=server))
    assert reasons(decision) == [reason]
    assert len(decision.warnings) == (reason == "ServerTooOld")


@pytest.mark.parametrize(
    ("kubelet", "reason"), [("v1.33.1", "Applied"), ("v1.32.9", "ServerTooOld")]
)
def test_kubelets_decide_if_the_server_version_is_unknown(kubelet: str, reason: str) -> None:
    nodes = [node("old", kubelet="v1.30.0"), node("new", kubelet=kubelet), node("odd", kubelet="")]
    assert reasons(decide_pod(pod(), selinux_view(*nodes, server=None))) == [reason]
