from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    Decided,
    Json,
    container,
    decide_pod,
    node,
    patched,
    pod,
    policy,
    reasons,
    runtime_class,
    view,
)
from tests.support.patches import changes
from webhook.core.policy.snapshot import Snapshot

POLICY = policy(remedies={"runtimeClass": {"name": "fast"}})


def decision(selector: dict[str, Any] | None = None, **spec: Any) -> Decided:
    return decide_pod(pod(**spec), view(POLICY, classes=[runtime_class("fast", None, selector)]))


def test_class_without_conflict_is_set() -> None:
    assert reasons(decision()) == ["Applied"]


def test_missing_class_is_not_set() -> None:
    seen = view(POLICY)
    assert reasons(decide_pod(pod(), seen)) == ["RuntimeClassMissing"]
    assert changes(decide_pod(pod(), seen)) == []


@pytest.mark.parametrize(
    ("of_pod", "of_class"),
    [
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
    ],
)
def test_overhead_is_compared_as_quantities(of_pod: Any, of_class: dict[str, Any]) -> None:
    seen = view(POLICY, classes=[runtime_class("fast", of_class)])
    assert reasons(decide_pod(pod(overhead=of_pod), seen)) == ["Applied"]


@pytest.mark.parametrize(
    ("of_pod", "of_class"),
    [
        ({"cpu": "250m"}, {"cpu": "0.251"}),
        ({"cpu": "250m"}, {"cpu": "250m", "memory": "1Mi"}),
        ({"cpu": "250m", "memory": "1Mi"}, {"cpu": "250m"}),
        ({"cpu": "250m"}, None),
        ({"memory": "1M"}, {"memory": "1Mi"}),
        ({"memory": "1E"}, {"memory": "1e1"}),
        ({"cpu": "1.2.3"}, {"cpu": "1.2"}),
        ({"cpu": "lots"}, {"cpu": "1"}),
        # Python refuses numbers of more than 4,300 digits.
        *(
            ({"cpu": text}, {"cpu": "1"})
            for text in (
                "1" * 5000,
                "0." + "1" * 5000,
                "1e" + "9" * 5000,
                "1e-" + "9" * 5000,
                "1e" + "9" * 30,
                "." * 5000,
                "1" * 4_000_000,
            )
        ),
        ({"cpu": int("1" * 4300)}, {"cpu": "1"}),
    ],
)
def test_class_with_another_overhead_is_not_set(
    of_pod: dict[str, Any], of_class: dict[str, Any] | None
) -> None:
    seen = view(POLICY, classes=[runtime_class("fast", of_class)])
    assert reasons(decide_pod(pod(overhead=of_pod), seen)) == ["RuntimeClassConflict"]


@pytest.mark.parametrize(
    ("of_pod", "reason"),
    [
        (None, "Applied"),
        ({"arch": "arm64"}, "Applied"),
        ({"rootfs": "volatile"}, "Applied"),
        ({"rootfs": "durable"}, "RuntimeClassConflict"),
        ({"rootfs": ""}, "RuntimeClassConflict"),
    ],
)
def test_class_with_a_conflicting_node_selector_is_not_set(
    of_pod: dict[str, str] | None, reason: str
) -> None:
    assert reasons(decision(selector={"rootfs": "volatile"}, nodeSelector=of_pod)) == [reason]


def test_class_with_a_node_selector_is_not_set_on_a_bound_pod() -> None:
    bound = decision(selector={"rootfs": "volatile"}, nodeName="worker-1")
    assert reasons(bound) == ["RuntimeClassConflict"]
    assert reasons(decision(nodeName="worker-1")) == ["Applied"]


def test_class_of_the_pod_is_never_replaced() -> None:
    preset = decision(runtimeClassName="kata")
    assert reasons(preset) == ["RuntimeClassPreset"]
    assert changes(preset) == []
    assert "'kata'" in preset.outcomes[0].message


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


SET_BY_THE_POLICY: list[Json] = [
    {"runtimeClass": {"name": "fast"}},
    {"skipSELinuxRelabel": {"pods": "All", "runtimeClassName": "fast"}},
]


@pytest.mark.parametrize("remedies", SET_BY_THE_POLICY)
@pytest.mark.parametrize(
    ("in_pool", "elsewhere", "reason"),
    [(CURED, AFFECTED, "NotNeeded"), (AFFECTED, CURED, "Applied")],
)
def test_only_nodes_of_the_class_that_the_policy_sets_count(
    remedies: Json, in_pool: str, elsewhere: str, reason: str
) -> None:
    seen = two_pools(in_pool, elsewhere, **remedies)
    first = decide_pod(pod(QUICK), seen)
    assert reasons(first)[-1] == f"prepare: {reason}"
    merged = patched(pod(QUICK), first)
    assert decide_pod(merged, seen).operations == ()
    merged["spec"]["nodeSelector"] = POOL
    assert decide_pod(merged, seen).operations == ()


@pytest.mark.parametrize(
    ("in_pool", "elsewhere", "reason"),
    [(CURED, AFFECTED, "NotNeeded"), (AFFECTED, CURED, "Applied")],
)
def test_only_nodes_of_the_class_that_the_pod_names_count(
    in_pool: str, elsewhere: str, reason: str
) -> None:
    """Both before the API server has merged the nodeSelector, as in a preview, and after."""
    seen = two_pools(in_pool, elsewhere)
    for selector in (None, POOL):
        asked = decide_pod(pod(QUICK, runtimeClassName="fast", nodeSelector=selector), seen)
        assert reasons(asked) == [f"prepare: {reason}"]


def test_node_must_fit_both_the_class_and_the_required_affinity() -> None:
    nodes = [
        node("ci-a", AFFECTED, labels={**POOL, "zone": "a"}),
        node("ci-b", CURED, labels={**POOL, "zone": "b"}),
        node("other-b", AFFECTED, labels={"pool": "other", "zone": "b"}),
    ]
    remedies: Json = {"runtimeClass": {"name": "fast"}, "postInitSleep": {}}
    classes = [runtime_class("fast", None, POOL)]
    seen = view(policy(remedies=remedies), classes=classes, nodes=nodes)
    for zone, reason in (("a", "Applied"), ("b", "NotNeeded")):
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        asked = pod(QUICK, affinity={"nodeAffinity": required})
        assert reasons(decide_pod(asked, seen)) == ["Applied", f"prepare: {reason}"]


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
