"""What a pod would lose under a class of CRI-O: small memory limits, annotations, a workload."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    Json,
    container,
    decide_pod,
    pod,
    policy,
    reasons,
    runtime_class,
    view,
)
from tests.support.patches import changes
from webhook.core.decision_input import MAX_CRIO_ANNOTATIONS
from webhook.core.policy.snapshot import Snapshot

RELABEL = {"skipSELinuxRelabel": {"runtimeClassName": "c", "pods": "All"}}
CLASS = {"runtimeClass": {"name": "c"}}
MIN_MEMORY, ALLOWED = "podsettle.dev/min-memory", "podsettle.dev/allowed-annotations"
LEVEL: Json = {"securityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}}}


def seen(remedies: Json, **of_class: str) -> Snapshot:
    names = {"min_memory": MIN_MEMORY, "allowed": ALLOWED}
    annotations = {names[key]: value for key, value in of_class.items()}
    return view(
        policy(remedies=remedies), classes=[runtime_class("c", annotations=annotations or None)]
    )


def limited(memory: Any, *, place: str = "containers") -> Json:
    made = pod(container("a", "/a"), containers=[container("b", "/b")], **LEVEL)
    spec = made["spec"]
    (spec if place == "pod" else spec[place][0])["resources"] = {"limits": {"memory": memory}}
    return made


@pytest.mark.parametrize("place", ["containers", "initContainers", "pod"])
@pytest.mark.parametrize("memory", ["5Mi", "11Mi", 5_000_000, "12582911", "0.01Gi"])
def test_limit_below_the_handlers_smallest_keeps_the_class_away(memory: Any, place: str) -> None:
    decision = decide_pod(limited(memory, place=place), seen(RELABEL))
    assert reasons(decision) == ["MemoryBelowMinimum"]
    assert changes(decision) == []


@pytest.mark.parametrize("memory", ["12Mi", "12582912", "13M", "1Gi", 0, "0", None, "x"])
def test_limit_that_the_handler_accepts_does_not(memory: Any) -> None:
    assert reasons(decide_pod(limited(memory), seen(RELABEL))) == ["Applied"]


@pytest.mark.parametrize(
    ("smallest", "memory", "reason"),
    [
        ("500Ki", "5Mi", "Applied"),
        ("500Ki", "499Ki", "MemoryBelowMinimum"),
        ("64Mi", "32Mi", "MemoryBelowMinimum"),
        ("nonsense", "5Mi", "MemoryBelowMinimum"),
        ("nonsense", "12Mi", "Applied"),
        ("0", "1", "Applied"),
    ],
)
def test_class_states_the_smallest_limit_for_both_remedies(
    smallest: str, memory: str, reason: str
) -> None:
    for remedies in (RELABEL, CLASS):
        decision = decide_pod(limited(memory), seen(remedies, min_memory=smallest))
        assert reasons(decision) == [reason]


DROPPED = [
    "io.kubernetes.cri-o.Devices",
    "devices.crio.io",
    "io.kubernetes.cri-o.userns-mode",
    "cpu-load-balancing.crio.io",
    "cpu-shared.crio.io/a",
    "unified-cgroup.crio.io.a",
    "io.kubernetes.cri-o.UnifiedCgroup.a",
    "seccomp-profile.kubernetes.cri-o.io/POD",
    "io.containers.trace-syscall",
    "run.oci.handler",
    "org.systemd.property.CollectMode",
]


@pytest.mark.parametrize("key", DROPPED)
def test_annotation_that_the_class_does_not_name_keeps_it_away(key: str) -> None:
    annotated = pod(annotations={key: "x"}, **LEVEL)
    for remedies, of_class in ((RELABEL, {}), (RELABEL, {"allowed": "shm-size.crio.io"})):
        decision = decide_pod(annotated, seen(remedies, **of_class))
        assert reasons(decision) == ["AnnotationNotAllowed"]
        assert changes(decision) == []
    assert reasons(decide_pod(annotated, seen(CLASS, allowed=""))) == ["AnnotationNotAllowed"]
    both = f"shm-size.crio.io, {key.removesuffix('/a')}"
    assert reasons(decide_pod(annotated, seen(RELABEL, allowed=both))) == ["Applied"]


@pytest.mark.parametrize(
    "key", ["example.com/a", "crio.io.example.com/a", "io.kubernetes.cri", "x.notcrio.io", "runs"]
)
def test_annotation_for_others_does_not(key: str) -> None:
    assert reasons(decide_pod(pod(annotations={key: "x"}, **LEVEL), seen(RELABEL))) == ["Applied"]


def test_more_annotations_than_are_read_keep_the_class_away() -> None:
    keys = [f"devices.crio.io/{number}" for number in range(MAX_CRIO_ANNOTATIONS + 1)]
    for count, reason in ((len(keys), "AnnotationNotAllowed"), (len(keys) - 1, "Applied")):
        annotated = pod(annotations=dict.fromkeys(keys[:count], "x"), **LEVEL)
        assert reasons(decide_pod(annotated, seen(RELABEL, allowed="devices.crio.io"))) == [reason]


@pytest.mark.parametrize(
    "key",
    [
        "io.openshift.builder",
        "io.openshift.nested-podman",
        "io.crio/workload",
        "target.workload.openshift.io/management",
        "io.kubernetes.cri-o.userns-mode",
        "devices.crio.io",
    ],
)
def test_pod_that_may_activate_another_workload_is_left(key: str) -> None:
    workload = seen({"skipSELinuxRelabel": {"pods": "All"}})
    decision = decide_pod(pod(annotations={key: "x"}, **LEVEL), workload)
    assert reasons(decision) == ["OtherWorkload"]
    assert changes(decision) == []
    (outcome,) = decision.decision.outcomes
    assert key in outcome.message
