from __future__ import annotations

from typing import Any

import pytest

from tests.builders import decided, pod, policy, runtime_class, settled, view, why
from webhook.core.decision import Decision

POLICY = policy(remedies={"runtimeClass": {"name": "fast"}})


def decision(selector: dict[str, Any] | None = None, **spec: Any) -> Decision:
    return decided(pod(**spec), view(POLICY, classes=[runtime_class("fast", None, selector)]))


def test_a_class_that_the_api_server_will_take_is_set() -> None:
    assert why(decision()) == ["Applied"]


def test_a_class_that_does_not_exist_would_get_the_pod_refused() -> None:
    seen = view(POLICY)
    assert why(decided(pod(), seen)) == ["RuntimeClassMissing"]
    assert settled(pod(), seen) == pod()


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
    assert why(decided(pod(overhead=of_pod), seen)) == ["Applied"]


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
    ],
)
def test_another_overhead_would_get_the_pod_refused(
    of_pod: dict[str, Any], of_class: dict[str, Any] | None
) -> None:
    seen = view(POLICY, classes=[runtime_class("fast", of_class)])
    assert why(decided(pod(overhead=of_pod), seen)) == ["RuntimeClassConflict"]


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
def test_a_node_selector_that_contradicts_would_get_the_pod_refused(
    of_pod: dict[str, str] | None, reason: str
) -> None:
    assert why(decision(selector={"rootfs": "volatile"}, nodeSelector=of_pod)) == [reason]


def test_a_pod_that_is_bound_to_a_node_gets_no_class_that_chooses_nodes() -> None:
    bound = decision(selector={"rootfs": "volatile"}, nodeName="worker-1")
    assert why(bound) == ["RuntimeClassConflict"]
    assert why(decision(nodeName="worker-1")) == ["Applied"]


def test_a_class_that_the_pod_names_is_never_replaced() -> None:
    preset = decision(runtimeClassName="kata")
    assert why(preset) == ["RuntimeClassPreset"]
    assert preset.operations == ()
    assert "'kata'" in preset.outcomes[0].message
