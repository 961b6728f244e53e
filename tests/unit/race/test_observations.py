"""Tests of what is observed of pods that end, fail, or do not end."""

from __future__ import annotations

from typing import Any

import pytest

from race.cells import Condition, Delivery, Kind, Provocation
from race.observations import Observations
from race.pods import Exit, make_pod
from webhook.core.constants import HELPER

pytestmark = pytest.mark.lab

BINARY = Condition(Provocation.LATE_EXIT, Delivery.BINARY, 500, Kind.INIT)
NAMES = [each["name"] for each in make_pod(BINARY, "image")["spec"]["initContainers"]]


def pod(phase: str, codes: dict[str, int]) -> dict[str, Any]:
    ended = [
        {"name": name, "state": {"terminated": {"exitCode": code, "containerID": "cri-o://a"}}}
        for name, code in codes.items()
    ]
    return {"status": {"phase": phase, "initContainerStatuses": ended}}


def whole() -> dict[str, int]:
    return {HELPER: 0, **dict.fromkeys(NAMES, 0), "main": 0}


def observed(phase: str, codes: dict[str, int]) -> Observations:
    seen = Observations()
    seen.add_ended(pod(phase, codes), BINARY)
    return seen


def test_a_pod_with_all_exits_is_not_incomplete() -> None:
    seen = observed("Succeeded", whole())
    assert not seen.incomplete[BINARY]
    assert seen.ended(BINARY) == len(NAMES)
    assert seen.pods == {BINARY: 1, BINARY.main: 1}


def test_a_failed_container_of_podsettle_is_an_exit_of_the_condition() -> None:
    seen = observed("Failed", {HELPER: 255})
    assert seen.exits == {Exit(BINARY, 255, is_added=True): 1}
    assert seen.ended(BINARY) == 0
    assert not seen.incomplete[BINARY]


def test_a_pod_that_fails_without_a_failed_container_is_incomplete() -> None:
    assert observed("Failed", whole()).incomplete[BINARY] == 1


def test_a_pod_that_lacks_an_exit_is_incomplete_unless_a_container_failed() -> None:
    lacking = whole()
    del lacking[NAMES[-1]]
    assert observed("Succeeded", lacking).incomplete[BINARY] == 1
    assert not observed("Failed", {**lacking, NAMES[0]: 255}).incomplete[BINARY]


def test_exits_of_a_stuck_pod_are_counted() -> None:
    seen = Observations()
    seen.add_stuck(pod("Pending", {HELPER: 0, NAMES[0]: 0}), BINARY)
    assert (seen.ended(BINARY), seen.stuck[BINARY]) == (1, 1)
