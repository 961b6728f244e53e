"""Tests of the two remedies with a RuntimeClass: when the class is set, and when it is not.

A class of CRI-O may take a pod's annotations away, refuse its memory limit, or end its workload.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest

from tests.support.factories import (
    Decided,
    Json,
    container,
    decide_pod,
    mutate_pod,
    node,
    patched,
    pod,
    policy,
    reasons,
    runtime_class,
    view,
)
from tests.support.patches import only_reason
from webhook.core.decision_input import MAX_CRIO_ANNOTATIONS
from webhook.core.policy.snapshot import Snapshot

LEVEL: Json = {"securityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}}}
CLASS: Json = {"runtimeClass": {"name": "fast"}}
RELABEL: Json = {"skipSELinuxRelabel": {"pods": "All", "runtimeClassName": "fast"}}
BOTH_REMEDIES = [CLASS, RELABEL]
POLICY = policy(remedies={"runtimeClass": {"name": "fast"}})
SEEN = view(POLICY, classes=[runtime_class("fast"), runtime_class("slow")])


def test_class_is_set_and_only_the_annotations_are_added() -> None:
    after = mutate_pod(pod(), SEEN)
    assert after["spec"].pop("runtimeClassName") == "fast"
    assert after["metadata"].pop("annotations")["podsettle.dev/settled"] == "1/0/0/0"
    assert after == pod()


def test_class_is_not_set_if_it_is_missing_or_the_pod_has_one() -> None:
    for of_pod, known, reason, message in (
        ("fast", ["fast"], "AlreadySettled", ""),
        ("kata", ["fast"], "RuntimeClassPreset", "'kata'"),
        (None, [], "RuntimeClassMissing", "'fast'"),
    ):
        document = pod(runtimeClassName=of_pod)
        seen = view(POLICY, classes=map(runtime_class, known))
        assert only_reason(document, seen) == reason
        assert message in decide_pod(document, seen).outcomes[0].message


def test_first_of_two_policies_sets_the_class() -> None:
    relabel = {"skipSELinuxRelabel": {"pods": "All", "runtimeClassName": "slow"}}
    policies = [policy("low", remedies=relabel, priority=-1), POLICY]
    seen = view(*policies, classes=[runtime_class("fast"), runtime_class("slow")])
    decision = decide_pod(pod(), seen)
    assert reasons(decision) == ["Applied", "RuntimeClassConflict"]
    after = mutate_pod(pod(), seen)
    assert after["spec"]["runtimeClassName"] == "fast"
    assert after["metadata"]["annotations"]["podsettle.dev/applied"] == "p/runtimeClass"


# A class only for volatile mounts has `when: NodesNeedIt`.

CRI_O = node("crio", "cri-o://1.33.12", labels={"pool": "crio"})
SLOW = node("slow", "containerd://2.1.5", labels={"pool": "slow"})


def volatile(*nodes: Json, when: str | None = "NodesNeedIt") -> Snapshot:
    settings = {"name": "fast"} | ({"when": when} if when else {})
    classes = [runtime_class("fast", None, {"pool": "volatile"})]
    return view(policy(remedies={"runtimeClass": settings}), classes=classes, nodes=nodes)


def test_nodes_need_it_skips_the_class_if_all_nodes_run_cri_o() -> None:
    cases: list[tuple[list[Json], Json, str]] = [
        ([CRI_O], {}, "NotNeeded"),
        ([CRI_O, SLOW], {}, "Applied"),
        ([CRI_O, SLOW], {"nodeSelector": {"zone": "new"}}, "Applied"),
        ([CRI_O, SLOW], {"nodeSelector": {"pool": "crio"}}, "NotNeeded"),
        ([CRI_O, SLOW], {"nodeName": "crio"}, "NotNeeded"),
        ([CRI_O, SLOW], {"nodeName": "crio", "runtimeClassName": "slow"}, "NotNeeded"),
        ([node("old", "cri-o://1.21.7")], {}, "Applied"),
        ([node("what", "")], {}, "Applied"),
        ([], {}, "Applied"),
    ]
    found = [(n, spec, only_reason(pod(**spec), volatile(*n))) for n, spec, _ in cases]
    assert found == cases


def test_need_is_decided_by_the_nodes_without_the_class() -> None:
    """The class may move the pod from affected nodes to CRI-O nodes."""
    cured = node("cured", "cri-o://1.36.0", labels={"pool": "volatile"})
    seen = volatile(cured, SLOW)
    decision = decide_pod(pod(), seen)
    assert reasons(decision) == ["Applied"]
    merged = patched(pod(), decision)
    merged["spec"]["nodeSelector"] = {"pool": "volatile"}
    assert reasons(decide_pod(merged, seen)) == ["AlreadySettled"]


@pytest.mark.parametrize("remedies", BOTH_REMEDIES)
def test_message_says_that_no_known_node_has_the_labels_of_the_class(remedies: Json) -> None:
    both = {"rootfs": "volatile", "zone": "a"}
    waits = (
        "; no known node has the labels of the class (rootfs=volatile,zone=a), "
        "so the pod waits for one"
    )
    for labels, end in (({"rootfs": "volatile"}, waits), (both, "put under fast")):
        (outcome,) = decide_on(remedies, [node(labels=labels)], both).outcomes
        assert outcome.reason == "Applied"
        assert outcome.message.endswith(end)


SAME_OVERHEAD: list[tuple[Any, Any]] = [
    ({"cpu": "250m"}, {"cpu": "0.25"}),
    ({"cpu": "1"}, {"cpu": 1}),
    ({"cpu": "1000m", "memory": "1Gi"}, {"memory": "1024Mi", "cpu": "1"}),
    ({"memory": "1e3"}, {"memory": "1k"}),
    ({"memory": "1E"}, {"memory": "1e18"}),
    ({"memory": "128974848"}, {"memory": "123Mi"}),
    ({"memory": "128974848000m"}, {"memory": "123Mi"}),
    ({"cpu": "500000u"}, {"cpu": "500000000n"}),
    ({"cpu": ".5"}, {"cpu": "500m"}),
    ({}, {"cpu": "1"}),
    (None, {"cpu": "1"}),
]
MANY = "1" * 5000
"""Python refuses numbers of more than 4,300 digits."""
LONG = [MANY, f"0.{MANY}", f"1e{MANY}", f"1e-{MANY}", "1e" + "9" * 30, "." * 5000, "1" * 4_000_000]
OTHER_OVERHEAD: list[tuple[Any, Any]] = [
    ({"cpu": "250m"}, {"cpu": "0.251"}),
    ({"cpu": "250m"}, {"cpu": "250m", "memory": "1Mi"}),
    ({"cpu": "250m", "memory": "1Mi"}, {"cpu": "250m"}),
    ({"cpu": "250m"}, None),
    ({"memory": "1M"}, {"memory": "1Mi"}),
    ({"cpu": "1", "memory": "1M"}, {"cpu": "1", "memory": "1Mi"}),
    ({"memory": "1E"}, {"memory": "1e1"}),
    ({"cpu": "1.2.3"}, {"cpu": "1.2"}),
    ({"cpu": "lots"}, {"cpu": "1"}),
    *(({"cpu": text}, {"cpu": "1"}) for text in LONG),
    ({"cpu": int("1" * 4300)}, {"cpu": "1"}),
]


@pytest.mark.parametrize("is_same", [True, False])
def test_class_with_another_overhead_than_the_pod_is_not_set(is_same: bool) -> None:
    for of_pod, of_class in SAME_OVERHEAD if is_same else OTHER_OVERHEAD:
        seen = view(POLICY, classes=[runtime_class("fast", of_class)])
        found = reasons(decide_pod(pod(overhead=of_pod), seen))
        case = str(of_pod)[:50], of_class
        assert found == ["Applied" if is_same else "RuntimeClassConflict"], case


def test_class_with_a_conflicting_node_selector_is_not_set() -> None:
    cases: list[tuple[Json, str]] = [
        ({}, "Applied"),
        ({"nodeSelector": {"arch": "arm64"}}, "Applied"),
        ({"nodeSelector": {"rootfs": "volatile"}}, "Applied"),
        ({"nodeSelector": {"rootfs": "durable"}}, "RuntimeClassConflict"),
        ({"nodeSelector": {"rootfs": ""}}, "RuntimeClassConflict"),
        ({"nodeName": "worker-1"}, "RuntimeClassConflict"),
    ]
    selecting = view(POLICY, classes=[runtime_class("fast", None, {"rootfs": "volatile"})])
    assert [(spec, only_reason(pod(**spec), selecting)) for spec, _ in cases] == cases
    assert {only_reason(pod(**spec), SEEN) for spec, _ in cases} == {"Applied"}


def named(*names: str, key: str = "metadata.name") -> dict[str, Any]:
    """Return the affinity of a pod that names its nodes, as that of a DaemonSet does."""
    requirement = {"key": key, "operator": "In", "values": list(names)}
    group = "matchFields" if key == "metadata.name" else "matchExpressions"
    required = {"nodeSelectorTerms": [{group: [requirement]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


HOSTNAME = "kubernetes.io/hostname"
OF_DAEMON_SET = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "a", "uid": "u"}]


def test_class_that_chooses_other_nodes_than_the_pod_is_not_set() -> None:
    conflict = "RuntimeClassConflict"
    cases: list[tuple[Json, list[Json], str]] = [
        ({"affinity": named("plain")}, OF_DAEMON_SET, conflict),
        ({"affinity": named("fast")}, OF_DAEMON_SET, "Applied"),
        ({"affinity": named("unknown")}, OF_DAEMON_SET, conflict),
        # The template of a DaemonSet, before its controller has chosen a node.
        ({}, OF_DAEMON_SET, conflict),
        ({"nodeSelector": {"rootfs": "volatile"}}, OF_DAEMON_SET, "Applied"),
        ({"affinity": named("plain")}, [], conflict),
        ({"affinity": named("plain", "fast")}, [], "Applied"),
        ({"affinity": named("plain", key=HOSTNAME)}, [], conflict),
        ({"nodeSelector": {HOSTNAME: "plain"}}, [], conflict),
        ({"nodeSelector": {HOSTNAME: "fast"}}, [], "Applied"),
        # Another node may join.
        ({"nodeSelector": {"zone": "b"}}, [], "Applied"),
        ({}, [], "Applied"),
    ]
    nodes = [
        node(name, "containerd://2.1.5", labels={HOSTNAME: name, "rootfs": rootfs})
        for name, rootfs in (("plain", "durable"), ("fast", "volatile"))
    ]
    classes = [runtime_class("fast", None, {"rootfs": "volatile"})]
    for spec, owners, reason in cases:
        given = pod(**spec)
        given["metadata"]["ownerReferences"] = owners
        found = only_reason(given, view(POLICY, classes=classes, nodes=nodes))
        assert (spec, found) == (spec, reason)
        assert only_reason(given, view(POLICY, classes=classes)) == "Applied"


# The nodes of the pod's class. The API server merges its nodeSelector before and after the webhook.

POOL = {"pool": "ci"}
AFFECTED, CURED = "cri-o://1.33.12", "cri-o://1.33.13"
QUICK = container("prepare", "/entrypoint", "init")


def two_pools(in_pool: str, elsewhere: str, **remedies: Any) -> Snapshot:
    nodes = [
        node("ci", in_pool, labels={**POOL, "zone": "a"}),
        node("other", elsewhere, labels={"pool": "other", "zone": "b"}),
    ]
    chosen: Json = {"postInitSleep": {}, **remedies}
    return view(policy(remedies=chosen), classes=[runtime_class("fast", None, POOL)], nodes=nodes)


@pytest.mark.parametrize("remedies", [*BOTH_REMEDIES, {}])
@pytest.mark.parametrize(
    ("in_pool", "elsewhere", "reason"),
    [(CURED, AFFECTED, "NotNeeded"), (AFFECTED, CURED, "Applied")],
)
def test_only_nodes_of_the_class_that_the_policy_sets_or_the_pod_names_count(
    remedies: Json, in_pool: str, elsewhere: str, reason: str
) -> None:
    """Both before the API server has merged the nodeSelector, as in a preview, and after."""
    seen = two_pools(in_pool, elsewhere, **remedies)
    named = None if remedies else "fast"
    for selector in (None, POOL):
        before = pod(QUICK, runtimeClassName=named, nodeSelector=selector)
        assert reasons(decide_pod(before, seen))[-1] == f"prepare: {reason}"
        merged = mutate_pod(before, seen)
        merged["spec"]["nodeSelector"] = POOL
        assert decide_pod(merged, seen).operations == ()


def test_image_volume_support_is_judged_by_the_nodes_of_the_class() -> None:
    """Nodes that the pod can no longer land on do not count."""
    nodes = [
        node("ci", "cri-o://1.35.2", "v1.36.0", POOL),
        node("other", AFFECTED, "v1.33.0", {"pool": "other"}),
    ]
    remedies: Json = {
        "runtimeClass": {"name": "fast"},
        "postInitSleep": {"delivery": "ImageVolume"},
    }
    classes = [runtime_class("fast", None, POOL)]
    seen = view(policy(remedies=remedies), classes=classes, nodes=nodes)
    assert reasons(decide_pod(pod(QUICK), seen)) == ["Applied", "prepare: Applied"]


SSD = {"disk": "ssd"}
WITH, WITHOUT, UNKNOWN = ["", "fast"], ["", "kata"], None


def nodes_with(*handlers: Iterable[str] | None, labels: Json | None = None) -> list[Json]:
    return [node(f"n{n}", labels=labels, handlers=each) for n, each in enumerate(handlers)]


def decide_on(
    remedies: Json, known: list[Json], selector: Json | None = None, **spec: Any
) -> Decided:
    seen = view(
        policy(remedies=remedies), classes=[runtime_class("fast", None, selector)], nodes=known
    )
    return decide_pod(pod(**LEVEL, **spec), seen)


@pytest.mark.parametrize("remedies", BOTH_REMEDIES)
def test_class_is_skipped_only_if_every_node_lists_handlers_without_its_own(
    remedies: Json,
) -> None:
    cases: list[tuple[list[Iterable[str] | None], str]] = [
        ([WITHOUT], "RuntimeClassUnhandled"),
        ([WITHOUT, [""]], "RuntimeClassUnhandled"),
        ([WITHOUT, WITH], "Applied"),
        ([WITHOUT, UNKNOWN], "Applied"),
        ([WITHOUT, []], "Applied"),
        ([UNKNOWN], "Applied"),
        ([], "Applied"),
    ]
    for handlers, reason in cases:
        decision = decide_on(remedies, nodes_with(*handlers))
        assert (handlers, reasons(decision)) == (handlers, [reason])
        assert bool(decision.applied_pairs) == (reason == "Applied")
        assert "runtimeClassName" not in str(decision.operations) or reason == "Applied"
    (outcome,) = decide_on(remedies, nodes_with(WITHOUT)).unmet
    assert outcome.sentence == (
        "no node that the pod could land on lists the handler 'fast' of RuntimeClass 'fast'"
    )


@pytest.mark.parametrize("remedies", BOTH_REMEDIES)
def test_only_nodes_that_the_pod_could_land_on_with_the_class_count(remedies: Json) -> None:
    mixed = [*nodes_with(WITHOUT, labels=SSD), node("other", handlers=WITH)]
    assert reasons(decide_on(remedies, mixed)) == ["Applied"]
    assert reasons(decide_on(remedies, mixed, SSD)) == ["RuntimeClassUnhandled"]
    assert reasons(decide_on(remedies, mixed, nodeSelector=SSD)) == ["RuntimeClassUnhandled"]
    assert reasons(decide_on(remedies, mixed, nodeName="n0")) == ["RuntimeClassUnhandled"]
    # The pod waits for a node that is not known, which may have the handler.
    assert reasons(decide_on(remedies, mixed, {"disk": "none"})) == ["Applied"]
    windows = node("w", "containerd://2.1.5", labels={"kubernetes.io/os": "windows"})
    assert reasons(decide_on(remedies, [*nodes_with(WITHOUT), windows])) == [
        "RuntimeClassUnhandled"
    ]


MIN_MEMORY, ALLOWED = "podsettle.dev/min-memory", "podsettle.dev/allowed-annotations"


def crio_class(remedies: Json, **of_class: str) -> Snapshot:
    names = {"min_memory": MIN_MEMORY, "allowed": ALLOWED}
    annotations = {names[key]: value for key, value in of_class.items()}
    return view(
        policy(remedies=remedies), classes=[runtime_class("fast", annotations=annotations or None)]
    )


def limited(memory: Any, *, place: str = "containers") -> Json:
    made = pod(container("a", "/a"), containers=[container("b", "/b")], **LEVEL)
    spec = made["spec"]
    (spec if place == "pod" else spec[place][0])["resources"] = {"limits": {"memory": memory}}
    return made


PLACES = ["containers", "initContainers", "pod"]


def test_limit_below_the_handlers_smallest_keeps_the_class_away() -> None:
    cases: list[tuple[str | None, Any, str]] = [
        *((None, m, "MemoryBelowMinimum") for m in ("5Mi", 5_000_000, "12582911", "0.01Gi")),
        *((None, m, "Applied") for m in ("12Mi", "12582912", "13M", "1Gi", 0, "0", None, "x")),
        ("500Ki", "5Mi", "Applied"),
        ("500Ki", "499Ki", "MemoryBelowMinimum"),
        ("64Mi", "32Mi", "MemoryBelowMinimum"),
        ("nonsense", "5Mi", "MemoryBelowMinimum"),
        ("nonsense", "12Mi", "Applied"),
        ("0", "1", "Applied"),
    ]
    for smallest, memory, reason in cases:
        stated = {"min_memory": smallest} if smallest else {}
        for remedies, place in product([CLASS, RELABEL] if smallest else [RELABEL], PLACES):
            found = only_reason(limited(memory, place=place), crio_class(remedies, **stated))
            assert (smallest, memory, place, found) == (smallest, memory, place, reason)


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


def test_annotation_that_the_class_does_not_name_keeps_it_away() -> None:
    for key in DROPPED:
        annotated = pod(annotations={key: "x"}, **LEVEL)
        for seen in (
            crio_class(RELABEL),
            crio_class(RELABEL, allowed="shm-size.crio.io"),
            crio_class(CLASS, allowed=""),
        ):
            assert only_reason(annotated, seen) == "AnnotationNotAllowed", key
        both = f"shm-size.crio.io, {key.removesuffix('/a')}"
        assert only_reason(annotated, crio_class(RELABEL, allowed=both)) == "Applied", key
    for key in (
        *("example.com/a", "crio.io.example.com/a", "io.kubernetes.cri", "x.notcrio.io", "runs"),
    ):
        of_others = pod(annotations={key: "x"}, **LEVEL)
        assert only_reason(of_others, crio_class(RELABEL)) == "Applied", key


def test_more_annotations_than_are_read_keep_the_class_away() -> None:
    keys = [f"devices.crio.io/{number}" for number in range(MAX_CRIO_ANNOTATIONS + 1)]
    seen = crio_class(RELABEL, allowed="devices.crio.io")
    for read, reason in ((keys, "AnnotationNotAllowed"), (keys[1:], "Applied")):
        assert only_reason(pod(annotations=dict.fromkeys(read, "x"), **LEVEL), seen) == reason


def test_pod_that_may_activate_another_workload_is_left() -> None:
    for key in (
        *("io.openshift.builder", "io.openshift.nested-podman", "io.crio/workload"),
        *("target.workload.openshift.io/management", "devices.crio.io"),
        "io.kubernetes.cri-o.userns-mode",
    ):
        workload = crio_class({"skipSELinuxRelabel": {"pods": "All"}})
        annotated = pod(annotations={key: "x"}, **LEVEL)
        assert only_reason(annotated, workload) == "OtherWorkload", key
        assert key in decide_pod(annotated, workload).outcomes[0].message
