"""Tests of the counts of lost exit codes, of the pods, and of what a full run has to show."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest

from lab.provocation import Provocation, runtime_class
from lab.race import (
    ABNORMAL,
    AUTO,
    CONTROL,
    DELIVERIES,
    ENDED,
    INIT,
    LOST,
    NONE,
    OTHER,
    OURS,
    PODS,
    REGULAR,
    WANTED,
    WANTED_OF_OTHERS,
    Condition,
    Counts,
    Driver,
    Result,
    check_delivery,
    count_exits,
    is_incomplete,
    race_pod,
    race_policy,
    read_calls,
    tables,
    unproven,
)
from lab.report import LabError
from webhook.core.constants import HELPER, HELPER_PATH
from webhook.core.policy.model import parse_policy
from webhook.core.remedies.shell_wrapper import SCRIPT

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


def test_containers_that_did_not_run_are_not_counted() -> None:
    made_up = {"terminated": {"exitCode": 137}}
    found = pod({}, made_up=made_up, waiting={"waiting": {}}, running={"running": {}})
    assert not counted(found)


@pytest.mark.parametrize(
    ("phase", "codes", "incomplete"),
    [
        ("Succeeded", WHOLE, False),
        ("Failed", WHOLE, True),
        ("Succeeded", {name: 0 for name in WHOLE if name != NAMES[-1]}, True),
        ("Failed", {HELPER: 255}, False),
        ("Failed", {HELPER: 0, NAMES[0]: 255}, False),
    ],
)
def test_a_pod_is_incomplete_if_it_lacks_exits_and_no_container_failed(
    phase: str, codes: dict[str, int], incomplete: bool
) -> None:
    assert is_incomplete(pod(codes, phase), BINARY) is incomplete


def test_pods_have_the_containers_policies_and_runtime_classes_of_their_conditions() -> None:
    conditions = {*WANTED, *WANTED_OF_OTHERS}
    for condition in conditions:
        made = race_pod(condition, "image")
        spec, labels = made["spec"], made["metadata"]["labels"]
        work = spec["initContainers"] if condition.kind == INIT else spec["containers"]
        assert len(work) == condition.expected
        assert spec["restartPolicy"] == "Never"
        if condition.provocation is Provocation.NATURAL:
            assert "runtimeClassName" not in spec
        else:
            named = runtime_class(condition.provocation)
            assert spec["runtimeClassName"] == named["metadata"]["name"] == named["handler"]
        if not condition.is_wrapped:
            assert not labels
            continue
        document = race_policy(condition)
        remedy = document["spec"]["remedies"]["postInitSleep"]
        assert remedy["delivery"] == condition.delivery
        assert remedy["minLifetime"] == f"{condition.lifetime_ms}ms"
        assert parse_policy(document).metadata.name == condition.policy
        assert document["spec"]["podSelector"] == {"matchLabels": labels}
    policies = [each.policy for each in WANTED if each.is_wrapped and each.provocation is S]
    assert len(set(policies)) == len(policies)


def test_commands_decide_the_delivery_and_the_lifetime() -> None:
    def of(condition: Condition) -> set[str]:
        containers = race_pod(condition, "image")["spec"]["initContainers"]
        return {" ".join(each["command"]) for each in containers}

    assert of(wrapped(AUTO)) == of(CONTROL) == {"true", "sh -c true"}
    assert of(wrapped("Shell")) == {"sh -c true"}
    assert of(BINARY) == {"true"}
    assert of(wrapped(NONE, 50)) == {"sleep 0.05"}


PLAIN = ["true"]
SHELL = ["sh", "-c", SCRIPT, "podsettle", "sh", "-c", "true"]
HELPED = [HELPER_PATH, "--", "true"]
HELPED_SHELL = [HELPER_PATH, "--", "sh", "-c", "true"]
IMAGE, EMPTY = {"name": HELPER, "image": {}}, {"name": HELPER, "emptyDir": {}}


@pytest.mark.parametrize(
    ("delivery", "volume", "commands", "right"),
    [
        (NONE, EMPTY, [PLAIN], True),
        ("Shell", EMPTY, [SHELL], True),
        ("Binary", EMPTY, [HELPED], True),
        ("ImageVolume", IMAGE, [HELPED], True),
        (AUTO, IMAGE, [HELPED, SHELL], True),
        (NONE, EMPTY, [SHELL], False),
        ("Shell", IMAGE, [HELPED_SHELL], False),
        ("Binary", IMAGE, [HELPED], False),
        ("ImageVolume", EMPTY, [HELPED], False),
        ("ImageVolume", IMAGE, [HELPED, PLAIN], False),
        (AUTO, EMPTY, [HELPED, SHELL], False),
        (AUTO, IMAGE, [HELPED, HELPED_SHELL], False),
    ],
)
def test_another_delivery_than_that_of_the_condition_ends_the_run(
    delivery: str, volume: dict[str, Any], commands: list[list[str]], right: bool
) -> None:
    init = [{"name": f"work-{n}", "command": command} for n, command in enumerate(commands)]
    main = [{"name": "main", "command": PLAIN}]
    made = {"spec": {"initContainers": init, "containers": main, "volumes": [volume]}}
    if right:
        check_delivery(made, wrapped(delivery))
    else:
        with pytest.raises(LabError, match="has the delivery"):
            check_delivery(made, wrapped(delivery))


def driver(**wanted: int) -> Driver:
    node: Any = None
    return Driver(node, {BINARY: wanted["binary"], CONTROL: wanted["control"]})


def test_the_condition_that_lags_behind_most_is_next() -> None:
    found = driver(binary=100, control=10)
    found.counts[CONTROL][ENDED] = 5
    assert found.next_condition() == BINARY
    found.counts[BINARY][ENDED] = 80
    assert found.next_condition() == CONTROL


def test_pods_in_flight_count_for_what_they_will_add() -> None:
    found = driver(binary=2 * BINARY.expected, control=2)
    found.created = {"a": (BINARY, 0.0), "b": (BINARY, 0.0), "c": (CONTROL, 0.0)}
    assert found.next_condition() == CONTROL
    found.created["d"] = (CONTROL, 0.0)
    assert found.next_condition() is None
    assert not found.is_complete
    found.counts[BINARY][ENDED], found.counts[CONTROL][ENDED] = 40, 2
    assert found.is_complete


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


def test_tables_show_each_condition_and_the_calls_of_each_handler() -> None:
    calls = {S: read_calls(LINES)}
    counts, called = tables([Result("cri-o://1.33.12", {**FULL, BINARY: Counter()}, calls, True)])
    assert len(counts.rows) == len(FULL)
    (row,) = called.rows
    shown = {name: cell if isinstance(cell, str) else cell.text for name, cell in row.items()}
    assert shown["starts"] == "2"
    assert shown["exposure"] == "320.00 ms (40.00–600.00)"
    assert [shown[f"above {bound} ms"] for bound in (50, 100, 250, 500)] == ["1"] * 4
