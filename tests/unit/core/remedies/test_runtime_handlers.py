"""Tests that no pod gets a RuntimeClass whose handler its nodes lack: RuntimeClassUnhandled.

Both remedies with a class are tested: runtimeClass and skipSELinuxRelabel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.factories import (
    Decided,
    Json,
    decide_pod,
    node,
    patched,
    pod,
    policy,
    reasons,
    runtime_class,
    view,
)

CLAIM: Json = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
LEVEL: Json = {"securityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}}}
SETTINGS: list[Json] = [
    {"runtimeClass": {"name": "fast"}},
    {"skipSELinuxRelabel": {"runtimeClassName": "fast"}},
]
SSD = {"disk": "ssd"}
WITH, WITHOUT, UNKNOWN = ["", "fast"], ["", "kata"], None


def nodes(*handlers: Iterable[str] | None, labels: Json | None = None) -> list[Json]:
    return [node(f"n{n}", labels=labels, handlers=each) for n, each in enumerate(handlers)]


def decide(remedies: Json, known: list[Json], selector: Json | None = None, **spec: Any) -> Decided:
    seen = view(
        policy(remedies=remedies), classes=[runtime_class("fast", None, selector)], nodes=known
    )
    return decide_pod(pod(**CLAIM, **LEVEL, **spec), seen)


@pytest.mark.parametrize("remedies", SETTINGS)
@pytest.mark.parametrize(
    ("handlers", "reason"),
    [
        ([WITHOUT], "RuntimeClassUnhandled"),
        ([WITHOUT, [""]], "RuntimeClassUnhandled"),
        ([WITHOUT, WITH], "Applied"),
        ([WITHOUT, UNKNOWN], "Applied"),
        ([WITHOUT, []], "Applied"),
        ([UNKNOWN], "Applied"),
        ([], "Applied"),
    ],
)
def test_class_is_skipped_only_if_every_node_lists_handlers_without_its_own(
    remedies: Json, handlers: list[Iterable[str] | None], reason: str
) -> None:
    decision = decide(remedies, nodes(*handlers))
    assert reasons(decision) == [reason]
    assert bool(decision.applied_pairs) == (reason == "Applied")
    assert "runtimeClassName" not in str(decision.operations) or reason == "Applied"


@pytest.mark.parametrize("remedies", SETTINGS)
def test_only_nodes_that_the_pod_could_land_on_with_the_class_count(remedies: Json) -> None:
    mixed = [*nodes(WITHOUT, labels=SSD), node("other", handlers=WITH)]
    assert reasons(decide(remedies, mixed)) == ["Applied"]
    assert reasons(decide(remedies, mixed, SSD)) == ["RuntimeClassUnhandled"]
    assert reasons(decide(remedies, mixed, nodeSelector=SSD)) == ["RuntimeClassUnhandled"]
    assert reasons(decide(remedies, mixed, nodeName="n0")) == ["RuntimeClassUnhandled"]
    # The pod waits for a node that is not known, which may have the handler.
    assert reasons(decide(remedies, mixed, {"disk": "none"})) == ["Applied"]


@pytest.mark.parametrize("remedies", SETTINGS)
def test_windows_node_that_lists_no_handlers_does_not_count(remedies: Json) -> None:
    windows = node("w", "containerd://2.1.5", labels={"kubernetes.io/os": "windows"})
    assert reasons(decide(remedies, [*nodes(WITHOUT), windows])) == ["RuntimeClassUnhandled"]
    assert reasons(decide(remedies, [*nodes(WITH), windows])) == ["Applied"]


@pytest.mark.parametrize("remedies", SETTINGS)
def test_pod_that_has_the_class_already_keeps_it_without_the_handler(remedies: Json) -> None:
    (name,) = remedies
    first = decide(remedies, nodes(WITH))
    after = patched(pod(**CLAIM, **LEVEL), first)
    classes = [runtime_class("fast")]
    seen = view(policy(remedies=remedies), classes=classes, nodes=nodes(WITHOUT))
    second = decide_pod(after, seen)
    assert reasons(second) == ["AlreadySettled"], name
    assert second.operations == ()


def test_message_names_the_class_and_its_handler() -> None:
    (outcome,) = decide(SETTINGS[0], nodes(WITHOUT)).unmet
    assert outcome.sentence == (
        "no node that the pod could land on lists the handler 'fast' of RuntimeClass 'fast'"
    )
