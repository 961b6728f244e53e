"""Tests of the counts of lost exit codes, of the pods, and of what a full run has to show."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest

from lab.provocation import Provocation
from lab.race import (
    ABNORMAL,
    AUTO,
    CONTROL,
    DELIVERIES,
    ENDED,
    INIT,
    LOST,
    OTHER,
    OURS,
    PODS,
    REGULAR,
    Condition,
    Counts,
    Result,
    count_exits,
    race_pod,
    read_calls,
    unproven,
)
from webhook.core.constants import HELPER

pytestmark = pytest.mark.lab

S = Provocation.LATE_EXIT


def wrapped(delivery: str, lifetime_ms: int = 500, kind: str = INIT) -> Condition:
    return Condition(S, delivery, lifetime_ms, kind)


BINARY = wrapped("Binary")
NAMES = [each["name"] for each in race_pod(BINARY, "image")["spec"]["initContainers"]]
WHOLE = {HELPER: 0, **dict.fromkeys(NAMES, 0), "main": 0}


def pod(codes: dict[str, int], phase: str = "Succeeded", **more: dict[str, Any]) -> dict[str, Any]:
    ended = [
        {"name": name, "state": {"terminated": {"exitCode": code, "containerID": "cri-o://a"}}}
        for name, code in codes.items()
    ]
    ended += [{"name": name, "state": state} for name, state in more.items()]
    return {"status": {"phase": phase, "initContainerStatuses": ended}}


def counted(found: dict[str, Any]) -> Counts:
    counts: Counts = defaultdict(Counter)
    count_exits(counts, found, BINARY)
    return counts


def test_exits_are_counted_by_condition_and_code_apart_from_added_containers() -> None:
    counts = counted(pod({**WHOLE, NAMES[0]: 255, NAMES[1]: 1, "main": 255}))
    own = {PODS: 1, ENDED: len(NAMES), LOST: 1, OTHER: 1, OURS: 0}
    assert counts[BINARY] == own
    assert counts[CONTROL.main] == {PODS: 1, ENDED: 1, LOST: 1, OTHER: 0}
    assert counted(pod({HELPER: 255}))[BINARY] == {PODS: 1, OURS: 1}


LINES = """\
start a 1000 21000 0 -
state b 5000 6000 0 running
start b 7000 9000 0 -
state a 30000 61000 1 stopped
state b 300000 609000 0 running
state a 700000 900000 1 stopped
half a li
""".splitlines()


def test_exposure_lasts_from_the_start_until_the_first_answer_after_it() -> None:
    calls = read_calls(LINES)
    assert calls.starts_ms == [20, 2]
    assert calls.queries == 4
    assert calls.exposures_ms == [40, 600]
    assert calls.stopped == 1


def count(ended: int, lost: int = 0, **more: int) -> Counter[str]:
    keys = {"other": OTHER, "ours": OURS, "abnormal": ABNORMAL}
    return Counter({ENDED: ended, LOST: lost, **{keys[name]: each for name, each in more.items()}})


FULL = {
    **{wrapped(each): count(1_000) for each in DELIVERIES},
    **{wrapped(each, kind=REGULAR): count(150) for each in DELIVERIES},
    wrapped("Shell", 10): count(30, 20),
    CONTROL: count(100, 90),
    CONTROL.main: count(200, 150),
}
FIXED = {CONTROL: count(300), CONTROL.main: count(100)}


def missing(
    affected: dict[Condition, Counter[str]], fixed: dict[Condition, Counter[str]]
) -> list[str]:
    results = [Result("cri-o://1.33.12", affected, {}, True), Result("fixed", fixed, {}, True)]
    return [title.partition(":")[0] for title in unproven(results)]


OTHER_CODES, NUMBERED, CONTROLS = "wrapped, other codes", "Binary (init)", "control (init)"


@pytest.mark.parametrize(
    ("condition", "found", "titles"),
    [
        (BINARY, count(1_000), []),
        (BINARY, count(1_000, 1), [NUMBERED]),
        (BINARY, count(999), [NUMBERED]),
        (BINARY, count(1_000, other=1_000), [NUMBERED, OTHER_CODES]),
        (BINARY, count(1_000, ours=1), [NUMBERED, OTHER_CODES]),
        (BINARY, count(1_000, abnormal=1), [NUMBERED, OTHER_CODES]),
        (wrapped(AUTO, kind=REGULAR), count(99), ["Auto (regular)"]),
        (wrapped(AUTO, kind=REGULAR), count(150, 9), ["Auto (regular)"]),
        (wrapped("Shell", 10), count(30, other=1), [OTHER_CODES]),
        (CONTROL, count(100, 50), [CONTROLS]),
        (CONTROL, count(100, other=100), [CONTROLS]),
        (CONTROL, count(99, 99), [CONTROLS]),
        (CONTROL, count(100, 90, abnormal=1), [CONTROLS]),
        (CONTROL.main, count(100, 50), ["control (regular)"]),
    ],
)
def test_a_full_run_is_unproven_if(
    condition: Condition, found: Counter[str], titles: list[str]
) -> None:
    assert missing({**FULL, condition: found}, FIXED) == titles


@pytest.mark.parametrize(
    "found", [count(100, 1), count(100, other=1), count(100, abnormal=1)], ids=str
)
def test_a_failure_on_a_runtime_without_the_defect_is_missing(found: Counter[str]) -> None:
    assert missing(FULL, {**FIXED, CONTROL.main: found}) == ["fixed"]
    assert missing(FULL, {CONTROL: count(99)}) == ["fixed"]


def test_a_delivery_without_containers_is_missing() -> None:
    controls = {CONTROL: FULL[CONTROL], CONTROL.main: FULL[CONTROL.main]}
    assert len(missing(controls, FIXED)) == 2 * len(DELIVERIES) + 1
