"""Tests of when a pod gets the annotations that say to people what was done and left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jsonpatch
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.factories import (
    SETTINGS,
    Decided,
    Json,
    container,
    decide_pod,
    patched,
    pod,
    policy,
    reasons,
    view,
)
from tests.support.patches import NOTES, changes, without_notes
from webhook.core.policy.model import SettlePolicy

SUMMARY, SKIPPED = "podsettle.dev/summary", "podsettle.dev/skipped"
APPLIED, SETTLED = "podsettle.dev/applied", "podsettle.dev/settled"
URL = "https://docs.example/why"
QUICK, PLUGIN = container("prepare", "/entrypoint"), container("plugin")
LEFT = "plugin was left as it is: NoCommand."
LEFT_LIST = "plugin/postInitSleep=NoCommand"
DONE = "prepare is kept alive for at least 500 ms, by policy p"
SLEEP = policy()


def decide(document: Json, *policies: SettlePolicy, **options: Any) -> Decided:
    return decide_pod(document, view(*(policies or (SLEEP,))), **options)


def notes(document: Json, decision: Decided) -> Json:
    """Return the notes on the pod after the patch."""
    annotations = patched(document, decision)["metadata"].get("annotations", {})
    return {key: text for key, text in annotations.items() if key in NOTES}


def test_pod_with_nothing_but_a_warning_gets_only_the_notes() -> None:
    before = pod(PLUGIN)
    decision = decide(before)
    assert notes(before, decision) == {SUMMARY: LEFT, SKIPPED: LEFT_LIST}
    assert changes(decision) == []
    assert patched(before, decision)["metadata"]["annotations"].keys() == NOTES
    after = patched(before, decision)
    assert decide(after).operations == ()
    assert decide(after).warnings == decision.warnings


def test_operations_on_annotations_come_in_the_order_of_the_contract() -> None:
    keys = [
        operation["path"].rpartition("~1")[2]
        for operation in decide(pod(QUICK, PLUGIN, annotations={})).operations
        if operation["path"].startswith("/metadata/annotations/")
    ]
    assert keys == ["applied", "settled", "summary", "skipped"]


def test_summary_ends_with_the_address_that_the_operator_gives() -> None:
    before = pod(QUICK)
    settings = replace(SETTINGS, docs_url=URL)
    assert notes(before, decide(before, settings=settings))[SUMMARY] == f"{DONE}.\nWhy: {URL}"


@pytest.mark.parametrize("mark", [APPLIED, SETTLED, SUMMARY, SKIPPED])
def test_mark_that_does_not_name_the_unmet_remedy_does_not_prevent_the_notes(mark: str) -> None:
    before = pod(PLUGIN, annotations={mark: "x"})
    decision = decide(before)
    assert notes(before, decision) == {SUMMARY: LEFT, SKIPPED: LEFT_LIST}
    assert changes(decision) == []
    assert decide(patched(before, decision)).operations == ()
    edited = pod(PLUGIN, QUICK, annotations={mark: "x"})
    assert notes(edited, decide(edited)) == {
        SUMMARY: f"{DONE};\nplugin was left as it is: NoCommand.",
        SKIPPED: LEFT_LIST,
    }


def test_notes_are_rewritten_with_the_container_that_another_webhook_added() -> None:
    once = patched(pod(QUICK, PLUGIN), decide(pod(QUICK, PLUGIN)))
    once["spec"]["initContainers"].append(container("late", "/late"))
    again = decide(once)
    assert notes(once, again)[SUMMARY] == (
        "prepare and late are kept alive for at least 500 ms, by policy p;\n"
        "plugin was left as it is: NoCommand."
    )
    # Another webhook gives the container a command.
    once["spec"]["initContainers"][-2]["command"] = ["/plugin"]
    cured = decide(once)
    assert notes(once, cured)[SKIPPED] == ""


@pytest.mark.parametrize("init", [QUICK, container("other", "/other", restartPolicy="Always")])
def test_pod_that_a_version_without_notes_settled_gets_them_once(init: Json) -> None:
    before = pod(init, PLUGIN)
    old = jsonpatch.apply_patch(before, without_notes(decide(before).operations))
    assert NOTES.isdisjoint(old["metadata"].get("annotations", {}))
    again = decide(old)
    assert changes(again) == []
    assert notes(old, again)[SKIPPED] == LEFT_LIST
    assert decide(patched(old, again)).operations == ()


OTHER_ENTRY, WHOLE_POD = "plugin/newRemedy=NewCode", "newRemedy=NewCode"


def test_entries_of_another_version_stay_beside_those_of_this_one() -> None:
    before = pod(PLUGIN, annotations={SKIPPED: f"{OTHER_ENTRY},{WHOLE_POD},+3"})
    decision = decide(before)
    assert notes(before, decision) == {
        SUMMARY: LEFT,
        SKIPPED: f"{OTHER_ENTRY},{WHOLE_POD},{LEFT_LIST}",
    }
    assert decide(patched(before, decision)).operations == ()


@pytest.mark.parametrize(
    "entry",
    ["all is well", "gone/postInitSleep=NoCommand", "plugin/a b=NoCommand", "plugin/x=\x1b[31m",
     "postInitSleep=", "x=" + "y" * 64, "plugin/plugin/x=y"],
)  # fmt: skip
def test_texts_that_podsettle_does_not_write_leave_the_list(entry: str) -> None:
    before = pod(PLUGIN, annotations={SKIPPED: entry})
    assert notes(before, decide(before)) == {SUMMARY: LEFT, SKIPPED: LEFT_LIST}


def test_list_without_space_for_another_entry_is_left_as_it_is() -> None:
    names = [f"{number:063}" for number in range(40)]
    once = patched(pod(*map(container, names)), decide(pod(*map(container, names))))
    assert once["metadata"]["annotations"][SKIPPED].endswith(f",+{40 - 8}")
    once["spec"]["initContainers"].append(PLUGIN)
    assert decide(once).operations == ()


LOOK_UP = {"lookup": "Registry", "registries": ["registry.example"]}
REPLICAS = [
    partial(decide_pod, view=view(*policies), settings=settings)
    for policies, settings in (
        ((SLEEP,), SETTINGS),
        ((SLEEP,), replace(SETTINGS, linger_image=None, docs_url=URL)),
        ((policy(imageConfig=LOOK_UP),), SETTINGS),
        ((policy(remedies={"postInitSleep": {"delivery": "Shell"}}),), SETTINGS),
        ((policy(remedies={"kubeletGate": {}, "runtimeClass": {"name": "gone"}}),), SETTINGS),
    )
]
"""They give other reasons for one pod, as replicas of two versions of podsettle do."""
INITS = [QUICK, PLUGIN, *(container(f"{number:063}") for number in range(9))]


@examples(200)
@given(
    inits=st.lists(st.sampled_from(INITS), max_size=11, unique_by=lambda each: str(each["name"])),
    replicas=st.lists(st.sampled_from(REPLICAS), min_size=1, max_size=3),
    without=st.sampled_from([0, 1, 2, None]),
    preset=st.sampled_from([None, "", "lie", OTHER_ENTRY, "plugin/postInitSleep=NoShell,+2"]),
)
def test_replicas_that_give_other_reasons_stop_changing_the_notes(
    inits: list[Json],
    replicas: list[Callable[[Json], Decided]],
    without: int | None,
    preset: str | None,
) -> None:
    document = pod(*inits, annotations={} if preset is None else {SKIPPED: preset})
    changed = True
    for number in range(4):
        changed = False
        for index, decide_as_replica in enumerate(replicas):
            operations = [*decide_as_replica(document).operations]
            if index == without:  # This replica is of a version that writes no notes.
                operations = without_notes(operations)
            changed = changed or operations != []
            document = jsonpatch.apply_patch(document, operations)
            if index != without:
                assert decide_as_replica(document).operations == ()
        event(f"round {number}: {'changed' if changed else 'unchanged'}")
    assert not changed


LIMIT = 256 * 1024


def test_pod_without_space_for_the_notes_is_unchanged_and_keeps_its_warning() -> None:
    decision = decide(pod(PLUGIN, annotations={"full": "x" * (LIMIT - 50)}))
    assert reasons(decision) == ["plugin: NoCommand"]
    assert decision.operations == ()


def test_pod_without_space_for_the_notes_gets_its_remedy() -> None:
    before = pod(QUICK, PLUGIN, annotations={"full": "x" * (LIMIT - 150)})
    decision = decide(before)
    assert reasons(decision) == ["prepare: Applied", "plugin: NoCommand"]
    assert patched(before, decision)["metadata"]["annotations"].keys() == {"full", APPLIED, SETTLED}
    full = pod(QUICK, PLUGIN, annotations={"full": "x" * (LIMIT - 50)})
    assert reasons(decide(full)) == ["AnnotationsFull"]
