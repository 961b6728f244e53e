"""Tests of the warnings and audit annotations of a decision."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.admission.decision import Decision
from webhook.core.admission.response import audit_annotations_for, encode_texts, warnings_for
from webhook.core.reasons import Outcome, Reason


def test_only_a_reason_that_needs_an_action_gives_a_warning() -> None:
    """`docs/reasons.md` says which do. A test compares it with the code."""
    warning = {each for each in Reason if warnings_for([Outcome(each, "postInitSleep", "p", "a")])}
    assert warning == {each for each in Reason if each.warns}


@pytest.mark.parametrize(
    ("containers", "named"),
    [(["a"], "a: "), ([""], ""), ([*"abc"], "a, b, c: "), ([*"abcde"], "a, b, c and 2 more: ")],
)
@pytest.mark.parametrize("message", ["", "no such command"])
def test_a_warning_names_the_remedy_the_reason_and_up_to_three_containers(
    containers: list[str], named: str, message: str
) -> None:
    outcomes = [Outcome(Reason.NO_COMMAND, "r", "p", name, message=message) for name in containers]
    sentence = message or Reason.NO_COMMAND.meaning
    assert warnings_for(outcomes) == [f"podsettle: r: NoCommand: {named}{sentence}"]


SUBJECT = "podsettle: r: NoCommand: a: "


@pytest.mark.parametrize(("length", "end"), [(255, "m"), (256, "m"), (257, "..."), (9_999, "...")])
def test_a_long_warning_is_cut_to_256_characters(length: int, end: str) -> None:
    message = "m" * (length - len(SUBJECT))
    (warning,) = warnings_for([Outcome(Reason.NO_COMMAND, "r", "p", "a", message=message)])
    assert warning.endswith(end)
    assert warning.removesuffix(end) == f"{SUBJECT}{message}"[: min(length, 256) - len(end)]


def test_audit_annotations_list_applied_and_skipped_remedies() -> None:
    outcomes = (
        Outcome(Reason.APPLIED, "postInitSleep", "p", "a", changed=True),
        Outcome(Reason.UNSTABLE_SELINUX_LEVEL, "skipSELinuxRelabel", "q", changed=True),
        Outcome(Reason.NO_COMMAND, "postInitSleep", "p", "b"),
        Outcome(Reason.NO_POLICY),
    )
    assert audit_annotations_for(outcomes) == {
        "applied": "p/postInitSleep[a]=Applied q/skipSELinuxRelabel=UnstableSELinuxLevel",
        "skipped": "p/postInitSleep[b]=NoCommand NoPolicy",
    }


def test_warnings_and_audit_annotations_are_bounded() -> None:
    outcomes = tuple(
        Outcome(Reason.NO_COMMAND, "postInitSleep", "p", f"c{n}", message=f"m{n}")
        for n in range(1000)
    )
    warnings = warnings_for(outcomes)
    assert len(warnings) == 16
    assert warnings[-1] == "podsettle: 985 more"
    assert sum(map(len, warnings)) <= 4096
    assert max(map(len, audit_annotations_for(outcomes).values())) <= 8_192


def test_names_and_messages_of_a_client_are_bounded_as_json() -> None:
    names = [chr(1) * 1000, "é" * 1000, "a" * 64]
    outcomes = [
        Outcome(Reason.NO_COMMAND, "postInitSleep", "p", name, message=f"{n}{chr(1) * 300}")
        for n in range(20)
        for name in names
    ]
    assert len(json.dumps(warnings_for(outcomes))) <= 4_200
    skipped = audit_annotations_for(outcomes)["skipped"]
    assert skipped.split(" ")[:2] == ["p/postInitSleep[?]=NoCommand"] * 2


OUTCOMES = st.builds(
    Outcome,
    st.sampled_from([Reason.APPLIED, Reason.ALREADY_SETTLED, Reason.NOT_NEEDED, Reason.NO_SHELL]),
    remedy=st.sampled_from(["", "postInitSleep", "kubeletGate"]),
    policy=st.sampled_from(["", "p", "q"]),
    container=st.sampled_from(["", "a", "b", "x" * 300]),
    changed=st.booleans(),
    message=st.sampled_from(["", "m", "n"]),
    effect=st.sampled_from(["", "kept alive"]),
)


@given(st.lists(OUTCOMES, max_size=25))
def test_texts_are_those_of_the_outcomes(outcomes: list[Outcome]) -> None:
    found = Decision(tuple(outcomes)).texts
    annotations = audit_annotations_for(outcomes)
    assert found.audit_annotations == annotations
    assert found.texts_json == encode_texts(warnings_for(outcomes), annotations)
    assert found.log_summary == "; ".join(f"{k}: {v}" for k, v in annotations.items())
    pairs = {(each.policy, each.remedy) for each in outcomes if each.changed}
    assert sorted(found.applied_pairs) == sorted(pairs)
    counted = [(each.remedy, each.reason) for each in outcomes]
    assert dict(found.reason_counts) == {pair: counted.count(pair) for pair in counted}


def test_texts_of_any_pods_occupy_little_memory() -> None:
    tracemalloc.start()
    for number in range(1000):
        for count, length in ((20, 10_000), (50, 10), (20, 10)):
            names = [f"{number}-{index}-" + "x" * length for index in range(count)]
            outcomes = [
                Outcome(Reason.APPLIED, "postInitSleep", "p", name, changed=True) for name in names
            ]
            assert Decision(tuple(outcomes)).texts
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used_bytes < 4 * 1024 * 1024
