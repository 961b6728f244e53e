from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    Json,
    decide_pod,
    mutate_pod,
    patched,
    pod,
    policy,
    reasons,
    view,
)
from webhook.core.defects.versions import Version
from webhook.core.policy.snapshot import Snapshot

CLAIM: Json = {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}}
NEW = Version(1, 36)
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


def test_windows_pod_is_unchanged() -> None:
    """The API server refuses a pod for Windows that sets the field."""
    before = pod(securityContext={"fsGroup": 1000}, volumes=[CLAIM], os={"name": "windows"})
    decision = decide_pod(before, make_view())
    assert reasons(decision) == ["WindowsPod"]
    assert decision.operations == ()


def test_two_change_policies_are_set_in_one_pod() -> None:
    both: Json = {"fsGroupChangePolicy": "OnRootMismatch", "seLinuxChangePolicy": "Recursive"}
    seen = view(policy(remedies=both), server=NEW)
    after = mutate_pod(pod_with({"fsGroup": 1000}, CLAIM), seen)
    assert after["spec"]["securityContext"] == {"fsGroup": 1000, **both}


def test_second_call_changes_nothing() -> None:
    after = mutate_pod(pod_with({"fsGroup": 1000}, CLAIM), make_view())
    assert decide_pod(after, make_view()).operations == ()
