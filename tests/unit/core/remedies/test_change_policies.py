"""Tests of the two remedies that set a change policy: of fsGroup and of SELinux."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import Json, decide_pod, node, patched, pod, policy, reasons, view
from webhook.core.defects.versions import Version

CLAIM: Json = {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}}
EPHEMERAL: Json = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
NEW = Version(1, 36)
SELINUX = view(policy(remedies={"seLinuxChangePolicy": "Recursive"}), server=NEW)
FS_GROUP = view(policy(remedies={"fsGroupChangePolicy": "OnRootMismatch"}))


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
    decision = decide_pod(before, FS_GROUP)
    assert reasons(decision) == ["Applied"]
    after = patched(before, decision)
    assert after["metadata"].pop("annotations")["podsettle.dev/settled"] == "1/0/2/0"
    expected = security | {"fsGroupChangePolicy": "OnRootMismatch"}
    assert after["spec"] == before["spec"] | {"securityContext": expected}


@pytest.mark.parametrize(
    "security",
    ["absent", None, {}, {"seLinuxChangePolicy": None}, {"fsGroup": 5, "x-new": {"a": [1]}}],
)
def test_missing_value_is_set_and_other_fields_are_kept(security: Any) -> None:
    before = pod() if security == "absent" else pod(securityContext=security)
    decision = decide_pod(before, SELINUX)
    assert reasons(decision) == ["Applied"]
    after = patched(before, decision)
    assert after["metadata"].pop("annotations") == {
        "podsettle.dev/applied": "p/seLinuxChangePolicy",
        "podsettle.dev/settled": "1/0/0/0",
        "podsettle.dev/summary": "The pod is set to seLinuxChangePolicy Recursive, by policy p.",
    }
    had = security if isinstance(security, dict) else {}
    expected = had | {"seLinuxChangePolicy": "Recursive"}
    assert after["spec"] == before["spec"] | {"securityContext": expected}


GROUP = {"fsGroup": 1000}
READ_ONLY: Json = {"persistentVolumeClaim": {"claimName": "data", "readOnly": True}}


def test_pod_with_a_value_or_without_a_group_or_a_claim_is_unchanged() -> None:
    cases: list[tuple[Any, Json, str]] = [
        (GROUP | {"fsGroupChangePolicy": "OnRootMismatch"}, CLAIM, "AlreadySettled"),
        (GROUP | {"fsGroupChangePolicy": "Always"}, CLAIM, "FieldPreset"),
        (GROUP | {"fsGroupChangePolicy": "Newer"}, CLAIM, "FieldPreset"),
        (None, CLAIM, "NotApplicable"),
        ({}, CLAIM, "NotApplicable"),
        ({"fsGroup": None}, CLAIM, "NotApplicable"),
        ({"runAsUser": 1000}, CLAIM, "NotApplicable"),
        (GROUP, {"configMap": {"name": "a"}}, "NoPersistentVolume"),
        (GROUP, {"csi": {"driver": "inline.example"}}, "NoPersistentVolume"),
        (GROUP, {"persistentVolumeClaim": None}, "NoPersistentVolume"),
        (GROUP, READ_ONLY, "NoPersistentVolume"),
    ]
    for security, volume, reason in cases:
        before = pod_with(security, {"name": "data", **volume})
        # Kubernetes has no such field. The struct of the pod's fields is also that of a container.
        before["spec"]["containers"][0]["securityContext"] = GROUP
        decision = decide_pod(before, FS_GROUP)
        assert (security, volume, reasons(decision)) == (security, volume, [reason])
        assert (decision.operations, decision.warnings) == ((), [])


def test_existing_value_is_kept() -> None:
    cases: list[tuple[str, str]] = [
        ("Recursive", "AlreadySettled"),
        ("MountOption", "SELinuxChangePolicyPreset"),
        ("Newer", "SELinuxChangePolicyPreset"),
    ]
    for value, reason in cases:
        decision = decide_pod(pod(securityContext={"seLinuxChangePolicy": value}), SELINUX)
        assert (value, reasons(decision)) == (value, [reason])
        assert (decision.operations, decision.warnings) == ((), [])


def test_remedy_needs_a_server_that_supports_the_field_or_else_a_kubelet() -> None:
    cases: list[tuple[Version | None, list[str], str]] = [
        (Version(1, 32, 9), [], "ServerTooOld"),
        (Version(1, 33, 0, final=False), [], "ServerTooOld"),
        (None, [], "ServerTooOld"),
        (Version(1, 33), [], "Applied"),
        (Version(1, 37), [], "Applied"),
        (None, ["v1.30.0", "v1.33.1", ""], "Applied"),
        (None, ["v1.30.0", "v1.32.9", ""], "ServerTooOld"),
    ]
    chosen = policy(remedies={"seLinuxChangePolicy": "Recursive"})
    for server, kubelets, reason in cases:
        nodes = [node(f"n{number}", kubelet=kubelet) for number, kubelet in enumerate(kubelets)]
        decision = decide_pod(pod(), view(chosen, nodes=nodes, server=server))
        assert (server, kubelets, reasons(decision)) == (server, kubelets, [reason])
        assert len(decision.warnings) == (reason == "ServerTooOld")
