from __future__ import annotations

from typing import Any

import pytest

from tests.builders import (
    Json,
    container,
    decided,
    namespace,
    patched,
    pod,
    policy,
    runtime_class,
    settled,
    view,
    why,
)
from webhook.cluster.snapshot import Snapshot

OLD = "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel"
NEW = "try-skip-volume-selinux-label.crio.io"
APPLIED = "podsettle.dev/applied"
BOTH = {OLD: "true", NEW: "true"}
LEVEL = {"seLinuxOptions": {"level": "s0:c1,c2"}}
CLAIM: Json = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def seen(*classes: Json, **settings: Any) -> Snapshot:
    return view(policy(remedies={"skipSELinuxRelabel": settings}), classes=classes)


def test_both_spellings_are_written_with_the_value_true() -> None:
    before = pod(securityContext=LEVEL, **CLAIM)
    decision = decided(before, seen())
    assert why(decision) == ["Applied"]
    after = patched(before, decision)
    annotations = after["metadata"].pop("annotations")
    assert annotations.pop("podsettle.dev/settled") == "1/0/1/0"
    assert annotations == {**BOTH, APPLIED: "p/skipSELinuxRelabel"}
    assert after == before


def test_the_class_comes_with_the_annotations() -> None:
    before = pod(securityContext=LEVEL, **CLAIM)
    after = settled(before, seen(runtime_class("relabel"), runtimeClassName="relabel"))
    assert after["spec"] == before["spec"] | {"runtimeClassName": "relabel"}
    assert BOTH.items() <= after["metadata"]["annotations"].items()


@pytest.mark.parametrize(
    ("classes", "spec", "reason"),
    [
        ([], {}, "RuntimeClassMissing"),
        ([runtime_class("relabel")], {"runtimeClassName": "kata"}, "RuntimeClassPreset"),
        (
            [runtime_class("relabel", {"cpu": "1"})],
            {"overhead": {"cpu": "2"}},
            "RuntimeClassConflict",
        ),
        (
            [runtime_class("relabel", None, {"disk": "ssd"})],
            {"nodeSelector": {"disk": "hdd"}},
            "RuntimeClassConflict",
        ),
    ],
)
def test_without_the_class_there_are_no_annotations(
    classes: list[Json], spec: Json, reason: str
) -> None:
    decision = decided(pod(**CLAIM, **spec), seen(*classes, runtimeClassName="relabel"))
    assert why(decision) == [reason]
    assert decision.operations == ()


@pytest.mark.parametrize("present", [{OLD: "true"}, {NEW: "true"}, BOTH])
def test_what_is_missing_is_added(present: dict[str, str]) -> None:
    before = pod(annotations=present, securityContext=LEVEL, **CLAIM)
    decision = decided(before, seen(runtime_class("relabel"), runtimeClassName="relabel"))
    assert why(decision) == ["Applied"]
    after = patched(before, decision)
    assert BOTH.items() <= after["metadata"]["annotations"].items()
    assert after["spec"]["runtimeClassName"] == "relabel"


def test_a_pod_that_carries_all_of_it_is_settled() -> None:
    before = pod(annotations=BOTH, runtimeClassName="relabel", **CLAIM)
    decision = decided(before, seen(runtime_class("relabel"), runtimeClassName="relabel"))
    assert why(decision) == ["AlreadySettled"]
    assert decision.operations == ()


def test_annotations_go_onto_a_pod_that_names_the_class_itself() -> None:
    before = pod(runtimeClassName="relabel", securityContext=LEVEL, **CLAIM)
    decision = decided(before, seen(runtimeClassName="relabel"))
    assert why(decision) == ["Applied"]
    assert {operation["path"] for operation in decision.operations} == {"/metadata/annotations"}


@pytest.mark.parametrize("key", [OLD, NEW])
@pytest.mark.parametrize("value", ["false", "", "True"])
def test_a_value_that_somebody_set_is_kept(key: str, value: str) -> None:
    before = pod(annotations={key: value}, **CLAIM)
    decision = decided(before, seen(runtime_class("relabel"), runtimeClassName="relabel"))
    assert why(decision) == ["AnnotationPreset"]
    assert decision.operations == ()


@pytest.mark.parametrize(
    ("volumes", "reason"),
    [
        (None, "NoPersistentVolume"),
        ([], "NoPersistentVolume"),
        ([{"name": "a", "emptyDir": {}}], "NoPersistentVolume"),
        ([{"name": "a", "persistentVolumeClaim": None}], "NoPersistentVolume"),
        ([{"name": "a", "persistentVolumeClaim": {"claimName": "c"}}], "Applied"),
        ([{"name": "a", "ephemeral": {"volumeClaimTemplate": {}}}], "Applied"),
        ([{"name": "a", "emptyDir": {}}, *CLAIM["volumes"]], "Applied"),
    ],
)
def test_with_persistent_volumes_is_the_default(volumes: Any, reason: str) -> None:
    decision = decided(pod(volumes=volumes, securityContext=LEVEL), seen())
    assert why(decision) == [reason]
    assert why(decided(pod(volumes=volumes, securityContext=LEVEL), seen(pods="All"))) == [
        "Applied"
    ]


def test_spc_t_is_never_relabelled() -> None:
    before = pod(securityContext={"seLinuxOptions": {"type": "spc_t"}}, **CLAIM)
    decision = decided(before, seen())
    assert why(decision) == ["NotNeeded"]
    assert decision.operations == ()


def secured(name: str, level: str | None) -> Json:
    options = {"seLinuxOptions": {"level": level}} if level is not None else {}
    return container(name, "x", securityContext=options)


@pytest.mark.parametrize(
    ("spec", "stable"),
    [
        ({}, False),
        ({"securityContext": None}, False),
        ({"securityContext": {"seLinuxOptions": {"type": "container_t"}}}, False),
        ({"securityContext": {"seLinuxOptions": {"level": ""}}}, False),
        ({"securityContext": LEVEL}, True),
        ({"containers": [secured("a", "s0:c1"), secured("b", "s0:c1")]}, True),
        ({"containers": [secured("a", "s0:c1"), secured("b", None)]}, False),
    ],
)
def test_without_a_stable_level_it_is_applied_and_warned_of(spec: Json, stable: bool) -> None:
    before = pod(**CLAIM, **spec)
    decision = decided(before, seen())
    assert why(decision) == ["Applied" if stable else "UnstableSELinuxLevel"]
    assert len(decision.warnings) == (0 if stable else 1)
    assert BOTH.items() <= patched(before, decision)["metadata"]["annotations"].items()


def test_the_namespaces_of_openshift_have_a_stable_level() -> None:
    ci = namespace("ci", annotations={"openshift.io/sa.scc.mcs": "s0:c26,c15"})
    fixed = view(policy(remedies={"skipSELinuxRelabel": {}}), namespaces=[ci])
    assert why(decided(pod(**CLAIM), fixed)) == ["Applied"]


@pytest.mark.parametrize("settings", [{}, {"runtimeClassName": "relabel"}])
def test_a_settled_pod_needs_nothing_more(settings: Json) -> None:
    look = seen(runtime_class("relabel"), **settings)
    assert decided(settled(pod(**CLAIM), look), look).operations == ()
