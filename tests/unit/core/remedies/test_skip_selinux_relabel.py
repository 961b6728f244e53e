"""Tests of skipSELinuxRelabel: which pods get its annotations. test_runtime_class has its class."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    Json,
    container,
    decide_pod,
    namespace,
    node,
    patched,
    pod,
    policy,
    reasons,
    runtime_class,
    view,
)
from tests.support.patches import only_reason
from webhook.core.policy.snapshot import Snapshot

OLD = "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel"
NEW = "try-skip-volume-selinux-label.crio.io"
BOTH = {OLD: "true", NEW: "true"}
LEVEL = {"seLinuxOptions": {"level": "s0:c1,c2"}}
RELABEL = runtime_class("relabel", None, {"disk": "ssd"})
CLAIM: Json = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def make_view(*classes: Json, **settings: Any) -> Snapshot:
    return view(policy(remedies={"skipSELinuxRelabel": settings}), classes=classes)


def test_both_annotations_are_set_to_true() -> None:
    before = pod(securityContext=LEVEL, **CLAIM)
    decision = decide_pod(before, make_view())
    assert reasons(decision) == ["Applied"]
    after = patched(before, decision)
    annotations = after["metadata"].pop("annotations")
    assert annotations["podsettle.dev/settled"] == "1/0/1/0"
    assert {key: text for key, text in annotations.items() if "podsettle" not in key} == BOTH
    assert after == before


def test_annotations_are_not_set_if_the_class_is_not_or_the_pod_has_them() -> None:
    cases: list[tuple[list[Json], Json, str]] = [
        ([], {}, "RuntimeClassMissing"),
        ([RELABEL], {"runtimeClassName": "kata"}, "RuntimeClassPreset"),
        ([RELABEL], {"nodeName": "n"}, "RuntimeClassConflict"),
        ([RELABEL], {"runtimeClassName": "relabel", "annotations": BOTH}, "AlreadySettled"),
        *(
            ([RELABEL], {"annotations": {key: value}}, "AnnotationPreset")
            for key in BOTH
            for value in ("false", "", "True")
        ),
    ]
    for classes, fields, reason in cases:
        seen = make_view(*classes, runtimeClassName="relabel")
        assert (fields, only_reason(pod(**CLAIM, **fields), seen)) == (fields, reason)


@pytest.mark.parametrize("present", [{OLD: "true"}, {NEW: "true"}, BOTH])
def test_missing_annotation_is_added(present: dict[str, str]) -> None:
    before = pod(annotations=present, securityContext=LEVEL, **CLAIM)
    decision = decide_pod(before, make_view(runtime_class("relabel"), runtimeClassName="relabel"))
    assert reasons(decision) == ["Applied"]
    after = patched(before, decision)
    assert BOTH.items() <= after["metadata"]["annotations"].items()
    assert after["spec"]["runtimeClassName"] == "relabel"


def test_pod_that_names_the_class_itself_is_annotated() -> None:
    before = pod(runtimeClassName="relabel", securityContext=LEVEL, **CLAIM)
    decision = decide_pod(before, make_view(runtimeClassName="relabel"))
    assert reasons(decision) == ["Applied"]
    assert {operation["path"] for operation in decision.operations} == {"/metadata/annotations"}


def test_class_that_another_remedy_sets_counts_as_the_pods_own() -> None:
    """Otherwise a second call would add the annotations, which the first one left out."""
    remedies = {"runtimeClass": {"name": "relabel"}}
    skip = {"skipSELinuxRelabel": {"runtimeClassName": "relabel"}}
    seen = view(policy(remedies=remedies | skip), classes=[runtime_class("relabel")])
    small = container("main", "x", resources={"limits": {"memory": "5Mi"}})
    before = pod(containers=[small], securityContext=LEVEL, **CLAIM)
    decision = decide_pod(before, seen)
    assert reasons(decision) == ["Applied", "Applied"]
    after = patched(before, decision)
    assert BOTH.items() <= after["metadata"]["annotations"].items()
    assert reasons(decide_pod(after, seen)) == ["AlreadySettled", "AlreadySettled"]


def test_only_pods_with_persistent_volumes_are_annotated_by_default() -> None:
    cases: list[tuple[Any, str]] = [
        (None, "NoPersistentVolume"),
        ([], "NoPersistentVolume"),
        ([{"name": "a", "emptyDir": {}}], "NoPersistentVolume"),
        ([{"name": "a", "persistentVolumeClaim": None}], "NoPersistentVolume"),
        (
            [{"name": "a", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}}],
            "NoPersistentVolume",
        ),
        ([{"name": "a", "persistentVolumeClaim": {"claimName": "c"}}], "Applied"),
        ([{"name": "a", "ephemeral": {"volumeClaimTemplate": {}}}], "Applied"),
        ([{"name": "a", "emptyDir": {}}, *CLAIM["volumes"]], "Applied"),
    ]
    for volumes, reason in cases:
        before = pod(volumes=volumes, securityContext=LEVEL)
        assert (volumes, only_reason(before, make_view())) == (volumes, reason)
        assert only_reason(before, make_view(pods="All")) == "Applied"


def of_type(name: str, kind: str | None) -> Json:
    return container(name, "x", securityContext={"seLinuxOptions": {"type": kind}})


def test_pod_is_annotated_unless_all_of_its_containers_have_the_type_spc_t() -> None:
    cases: list[tuple[str | None, list[str | None], list[str | None], bool]] = [
        ("spc_t", [None], [None, ""], False),
        (None, ["spc_t"], ["spc_t", "spc_t"], False),
        ("container_t", [], ["spc_t"], False),
        ("spc_t", [], [None, "container_t"], True),
        ("spc_t", ["container_t"], [None], True),
        (None, [], ["spc_t", None], True),
        (None, ["spc_t"], [""], True),
    ]
    for of_pod, init, regular, is_relabelled in cases:
        before = pod(
            securityContext={"seLinuxOptions": {"type": of_pod, "level": "s0:c1,c2"}},
            initContainers=[of_type(f"i{index}", kind) for index, kind in enumerate(init)],
            containers=[of_type(f"c{index}", kind) for index, kind in enumerate(regular)],
            **CLAIM,
        )
        found = only_reason(before, make_view())
        assert (before, found) == (before, "Applied" if is_relabelled else "NotNeeded")


def test_own_init_container_does_not_make_a_pod_of_type_spc_t_relabelled() -> None:
    seen = view(policy(remedies={"kubeletGate": {}, "skipSELinuxRelabel": {}}))
    before = pod(containers=[of_type("main", "spc_t")], **CLAIM)
    first = decide_pod(before, seen)
    assert reasons(first) == ["NotNeeded", "Applied"]
    assert reasons(decide_pod(patched(before, first), seen)) == ["NotNeeded", "AlreadySettled"]


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
def test_unstable_selinux_level_is_applied_with_a_warning(spec: Json, stable: bool) -> None:
    before = pod(**CLAIM, **spec)
    decision = decide_pod(before, make_view())
    assert reasons(decision) == ["Applied" if stable else "UnstableSELinuxLevel"]
    assert len(decision.warnings) == (0 if stable else 1)
    assert BOTH.items() <= patched(before, decision)["metadata"]["annotations"].items()
    ci = namespace("ci", annotations={"openshift.io/sa.scc.mcs": "s0:c26,c15"})
    openshift = view(policy(remedies={"skipSELinuxRelabel": {}}), namespaces=[ci])
    assert reasons(decide_pod(before, openshift)) == ["Applied"]


# If no node that the pod could land on runs CRI-O, no runtime reads the annotations.

CRI_O = node("crio", "cri-o://1.33.13")
OTHER = node("other", "containerd://2.1.5")


def on(*nodes: Json, **settings: Any) -> Snapshot:
    classes = [runtime_class("relabel")]
    return view(policy(remedies={"skipSELinuxRelabel": settings}), nodes=nodes, classes=classes)


def test_remedy_is_skipped_if_no_node_runs_cri_o() -> None:
    cases: list[tuple[list[Json], str, str]] = [
        ([OTHER], "NodesNeedIt", "NotNeeded"),
        ([OTHER], "Always", "Applied"),
        ([CRI_O], "NodesNeedIt", "Applied"),
        ([OTHER, CRI_O], "NodesNeedIt", "Applied"),
        ([node("n", "cri-o://")], "NodesNeedIt", "Applied"),
        ([], "NodesNeedIt", "Applied"),
    ]
    before = pod(securityContext=LEVEL, **CLAIM)
    for nodes, when, reason in cases:
        for settings in ({}, {"runtimeClassName": "relabel"}):
            found = only_reason(before, on(*nodes, when=when, **settings))
            assert (nodes, when, found) == (nodes, when, reason)
