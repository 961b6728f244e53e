"""Tests of the experiment's pods and of the exit codes that are read from them."""

from __future__ import annotations

from typing import Any

import pytest

from race.cells import DEFAULT_LIFETIME_MS, FULL, Condition, Delivery, Kind, Provocation
from race.pods import (
    CONDITION_LABEL,
    POLICY_LABEL,
    Exit,
    exits_of,
    expected_exits,
    make_pod,
    name_of,
    policy,
    policy_name,
    runtime_class,
)
from webhook.core.policy.model import parse_policy

pytestmark = pytest.mark.lab

WRAPPED = Condition(Provocation.LATE_EXIT, Delivery.AUTO, DEFAULT_LIFETIME_MS, Kind.INIT)
PLAIN = Condition(Provocation.LATE_EXIT, Delivery.NONE, 0, Kind.INIT)
CONDITIONS = [cell.condition for cell in (*FULL.affected, *FULL.other)]


def ended(name: str, code: int) -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, "containerID": "cri-o://a"}}}


def test_exits_are_counted_under_their_conditions_apart_from_those_of_added_containers() -> None:
    status = {
        "initContainerStatuses": [ended("podsettle-linger", 0), ended("work-0", 0)],
        "containerStatuses": [ended("main", 255)],
    }
    assert list(exits_of({"status": status}, WRAPPED)) == [
        Exit(WRAPPED, 0, is_added=True),
        Exit(WRAPPED, 0),
        Exit(Condition(Provocation.LATE_EXIT, Delivery.NONE, 0, Kind.REGULAR), 255),
    ]


def test_containers_that_did_not_run_are_not_counted() -> None:
    made_up = {"name": "work-0", "state": {"terminated": {"exitCode": 137}}}
    waiting = {"name": "work-1", "state": {"waiting": {"reason": "PodInitializing"}}}
    running = {"name": "work-2", "state": {"running": {}}}
    pod = {"status": {"initContainerStatuses": [made_up, waiting, running]}}
    assert not list(exits_of(pod, WRAPPED))
    assert not list(exits_of({}, WRAPPED))


@pytest.mark.parametrize("condition", CONDITIONS, ids=name_of)
def test_pod_has_as_many_counted_containers_as_expected(condition: Condition) -> None:
    pod = make_pod(condition, "image")
    spec = pod["spec"]
    names = [each["name"] for each in spec.get("initContainers", []) + spec["containers"]]
    status = {"containerStatuses": [ended(name, 0) for name in names]}
    found = list(exits_of({"status": status}, condition))
    assert sum(each.condition == condition for each in found) == expected_exits(condition)
    assert spec["restartPolicy"] == "Never"
    assert pod["metadata"]["labels"][CONDITION_LABEL] == name_of(condition)


@pytest.mark.parametrize("condition", CONDITIONS, ids=name_of)
def test_only_a_provoked_pod_names_a_runtime_class(condition: Condition) -> None:
    spec = make_pod(condition, "image")["spec"]
    if condition.provocation is Provocation.NATURAL:
        assert "runtimeClassName" not in spec
    else:
        named = runtime_class(condition.provocation)
        assert spec["runtimeClassName"] == named["metadata"]["name"] == named["handler"]


def test_auto_gets_commands_with_and_without_a_shell() -> None:
    commands = [each["command"] for each in make_pod(WRAPPED, "image")["spec"]["initContainers"]]
    assert {tuple(command) for command in commands} == {("true",), ("sh", "-c", "true")}


def test_an_unwrapped_container_lives_as_long_as_its_command_sleeps() -> None:
    slow = Condition(Provocation.LATE_EXIT, Delivery.NONE, 50, Kind.INIT)
    pod = make_pod(slow, "image")
    assert {tuple(each["command"]) for each in pod["spec"]["initContainers"]} == {("sleep", "0.05")}
    assert POLICY_LABEL not in pod["metadata"]["labels"]


@pytest.mark.parametrize("condition", [each for each in CONDITIONS if each.is_wrapped], ids=name_of)
def test_each_wrapped_condition_has_a_valid_policy_that_selects_its_pods(
    condition: Condition,
) -> None:
    document = policy(condition, "race")
    found = parse_policy(document)
    assert make_pod(condition, "i")["metadata"]["labels"][POLICY_LABEL] == policy_name(condition)
    remedy = document["spec"]["remedies"]["postInitSleep"]
    assert remedy["minLifetime"] == f"{condition.lifetime_ms}ms"
    assert found.metadata.name == policy_name(condition)


def test_conditions_of_the_plan_have_different_names() -> None:
    for cells in (FULL.affected, FULL.other):
        names = [name_of(cell.condition) for cell in cells]
        assert len(set(names)) == len(names)
