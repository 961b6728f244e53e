"""Tests of the sentence and the list on a pod that say what podsettle did and left out."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from webhook.core.admission.summary import (
    Skipped,
    notes_for,
    parse_skipped,
    summary_of,
    unmet_outcomes,
)
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies import REMEDIES

SUMMARY, SKIPPED = "podsettle.dev/summary", "podsettle.dev/skipped"
URL = "https://docs.example/why"
ALIVE = "kept alive for at least 500 ms"


def slept(*names: str, reason: Reason = Reason.APPLIED, policy: str = "tekton") -> list[Outcome]:
    changed = reason is Reason.APPLIED
    return [Outcome(reason, "postInitSleep", policy, name, changed, effect=ALIVE) for name in names]


def left(
    *names: str, reason: Reason = Reason.NO_COMMAND, remedy: str = "postInitSleep"
) -> list[Outcome]:
    return [Outcome(reason, remedy, "tekton", name) for name in names]


NO_CLASS = left("", reason=Reason.RUNTIME_CLASS_MISSING, remedy="runtimeClass")
OLD_SERVER = left("a", reason=Reason.SERVER_TOO_OLD, remedy="retryInitExit255")


def relabelled(reason: Reason = Reason.APPLIED) -> list[Outcome]:
    effect = "started without relabelling volumes that have the right label"
    return [Outcome(reason, "skipSELinuxRelabel", "large", "", True, effect=effect)]


def summary(outcomes: Iterable[Outcome], before: str = "", url: str | None = None) -> str:
    found = [*outcomes]
    return notes_for(found, unmet_outcomes(found), before, url)[SUMMARY]


def skipped(outcomes: Iterable[Outcome]) -> str:
    found = [*outcomes]
    return notes_for(found, unmet_outcomes(found), "", None)[SKIPPED]


@pytest.mark.parametrize(
    ("outcomes", "wanted"),
    [
        (
            [*slept("prepare", "place-scripts"), *left("plugin")],
            f"prepare and place-scripts are {ALIVE}, by policy tekton; "
            "plugin was left as it is: NoCommand.",
        ),
        (slept("prepare"), f"prepare is {ALIVE}, by policy tekton."),
        (slept(*"abc"), f"a, b and c are {ALIVE}, by policy tekton."),
        (slept(*"abcde"), f"a, b, c and 2 more are {ALIVE}, by policy tekton."),
        (left(*"ab"), "a and b were left as they are: NoCommand."),
        (
            relabelled(),
            "The pod is started without relabelling volumes that have the right label, by policy "
            "large.",
        ),
        (
            relabelled(Reason.UNSTABLE_SELINUX_LEVEL),
            "The pod is started without relabelling volumes that have the right label, by policy "
            "large, without effect: UnstableSELinuxLevel.",
        ),
        (NO_CLASS, "The pod was left as it is: RuntimeClassMissing."),
        ([*NO_CLASS, *left("", reason=Reason.MESH_TRAFFIC, remedy="kubeletGate")],
         "The pod was left as it is: RuntimeClassMissing, MeshTraffic."),
        ([*slept("a"), *NO_CLASS],
         f"a is {ALIVE}, by policy tekton; runtimeClass was left out: RuntimeClassMissing."),
        ([*slept("a"), *OLD_SERVER],
         f"a is {ALIVE}, by policy tekton; retryInitExit255 was left out for a: ServerTooOld."),
        ([*left("a"), *OLD_SERVER], "a was left as it is: NoCommand, ServerTooOld."),
        ([*slept("a"), *slept("b", policy="other")],
         f"a is {ALIVE}, by policy tekton; b is {ALIVE}, by policy other."),
        (left("a", reason=Reason.NOT_NEEDED), ""),
        (left("", reason=Reason.NO_POLICY, remedy=""), ""),
        ([], ""),
    ],
)  # fmt: skip
def test_summary_names_what_was_done_by_whom_and_what_was_left_out(
    outcomes: list[Outcome], wanted: str
) -> None:
    # Each clause is a line, because `kubectl describe` cuts long lines.
    assert summary(outcomes) == wanted.replace("; ", ";\n")


@given(
    st.lists(
        st.sampled_from(
            [*slept("a", "b", "", "x" * 300), *slept("a", policy="q"), *relabelled(),
             *relabelled(Reason.UNSTABLE_SELINUX_LEVEL)]
        ),
        max_size=30,
    ),
    st.sampled_from([None, URL, "https://other.example"]),
)  # fmt: skip
def test_summary_is_the_same_if_the_pod_names_remedies_of_an_earlier_call(
    changes: list[Outcome], url: str | None
) -> None:
    """A summary without earlier remedies and without unmet wishes may come from a cache."""
    assert summary(changes, url=url) == summary(changes, before="no/such", url=url)


def test_summaries_of_any_pods_occupy_little_memory() -> None:
    tracemalloc.start()
    for number in range(1000):
        summary(slept(*(f"{number}-{index}-" + "x" * 10_000 for index in range(20))))
        summary(slept(*(f"{number}-{index}" for index in range(50))))
        summary(slept(*(f"{number}-{index}" for index in range(20))))
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used_bytes < 2 * 1024 * 1024


def test_remedies_of_earlier_calls_are_in_the_summary() -> None:
    settled = slept("a", reason=Reason.ALREADY_SETTLED)
    both = [*settled, *slept("b")]
    assert summary(both, "x/y,tekton/postInitSleep") == f"a and b are {ALIVE}, by policy tekton."
    # The author of the pod, or a policy that is gone, made the change.
    assert summary(both, "other/postInitSleep") == f"b is {ALIVE}, by policy tekton."
    assert summary(both) == f"b is {ALIVE}, by policy tekton."


@pytest.mark.parametrize(
    "name", ["x" * 64, "x" * 1_000_000, "A", "a=b", "a,b", "a/b", "-", "\n"], ids=lambda n: n[:64]
)
def test_name_that_the_api_server_refuses_is_counted_but_not_quoted(name: str) -> None:
    wanted = f"a and 1 more are {ALIVE}, by policy tekton."
    assert summary([*slept("a"), *slept(name)]) == wanted
    assert summary(slept(name)) == f"1 container is {ALIVE}, by policy tekton."
    assert summary(left(name, name)) == "2 containers were left as they are: NoCommand."
    assert skipped(left(name)) == "+1"
    assert skipped([*left("a"), *left(name)]) == "a/postInitSleep=NoCommand,+1"


def test_skipped_has_only_what_warns_and_was_not_applied() -> None:
    outcomes = [
        *slept("a"),
        *left("b"),
        *left("c", reason=Reason.NOT_NEEDED),
        *relabelled(Reason.UNSTABLE_SELINUX_LEVEL),
        *NO_CLASS,
    ]
    text = "b/postInitSleep=NoCommand,runtimeClass=RuntimeClassMissing"
    assert skipped(outcomes) == text
    assert parse_skipped(text) == (
        Skipped("b", "postInitSleep", "NoCommand"),
        Skipped("", "runtimeClass", "RuntimeClassMissing"),
    )


def test_long_lists_are_cut_between_entries() -> None:
    names = [f"{number:063}" for number in range(500)]
    entries = skipped(left(*names)).split(",")
    assert len(f"{SKIPPED}{','.join(entries)}") <= 768
    assert entries[:-1] == [f"{name}/postInitSleep=NoCommand" for name in names[: len(entries) - 1]]
    assert entries[-1] == f"+{500 - len(entries) + 1}"
    assert len(parse_skipped(",".join(entries))) == len(entries) - 1


def test_long_summary_is_cut_between_clauses() -> None:
    outcomes = [
        each
        for number in range(40)
        for each in slept(*(f"{number}{n}".rjust(63, "x") for n in range(4)), policy=f"p{number}")
    ]
    text = summary(outcomes, url=URL)
    assert len(f"{SUMMARY}{text}") <= 1_280
    *clauses, rest = text.removesuffix(f".\nWhy: {URL}").split(";\n")
    assert len(clauses) > 3
    assert all(clause.endswith(f"by policy p{n}") for n, clause in enumerate(clauses))
    assert rest == f"and {40 - len(clauses)} more"


NAMES = st.sampled_from(["", "a", "b", "x" * 63, "x" * 64, "é", "a,b"])
OUTCOMES = st.lists(
    st.builds(
        lambda reason, remedy, policy, name, changed: Outcome(
            reason, remedy, policy, name, changed, effect="put under RuntimeClass " + "x" * 253
        ),
        st.sampled_from(Reason),
        st.sampled_from([*REMEDIES]),
        st.sampled_from(["p" * 63, "q"]),
        NAMES,
        st.booleans(),
    ),
    max_size=60,
)


@examples(200)
@given(outcomes=OUTCOMES, url=st.sampled_from([None, "https://" + "u" * 248]))
def test_any_outcomes_give_notes_within_their_bounds(
    outcomes: list[Outcome], url: str | None
) -> None:
    summary, skipped = notes_for(outcomes, unmet_outcomes(outcomes), "q/openFiles", url).values()
    assert len(f"{SUMMARY}{summary}".encode()) <= 1_280
    assert len(f"{SKIPPED}{skipped}".encode()) <= 768
    assert all(line.isprintable() for line in summary.split("\n"))
    entry = r"([-a-z0-9]+/)?[A-Za-z0-9]+=[A-Za-z0-9]+"
    assert re.fullmatch(rf"({entry}(,{entry})*)?(^\+\d+|,\+\d+)?", skipped)
    if summary:
        assert summary.endswith(f".\nWhy: {url}" if url else ".")
        assert not summary.startswith(";")
    assert summary_of(outcomes).endswith(".")


def test_summary_of_a_preview_always_says_something() -> None:
    cases: list[tuple[list[Outcome], str]] = [
        (slept("a"), f"a is {ALIVE}, by policy tekton."),
        (slept(*"ab", reason=Reason.WOULD_APPLY), f"a and b would be {ALIVE}, by policy tekton."),
        (slept("a", reason=Reason.ALREADY_SETTLED), f"a is already {ALIVE}."),
        (slept("a", "b", reason=Reason.ALREADY_SETTLED), f"a and b are already {ALIVE}."),
        (left("a", "b", reason=Reason.NOT_NEEDED), "The pod was left as it is: NotNeeded."),
        ([Outcome(Reason.NO_POLICY)], "The pod was left as it is: NoPolicy."),
        ([Outcome(Reason.OVERLOADED)], "The pod was left as it is: Overloaded."),
        ([Outcome(Reason.UNKNOWN_REMEDY), *slept("a")], f"a is {ALIVE}, by policy tekton."),
        ([], "The pod was left as it is."),
    ]
    assert [(outcomes, summary_of(outcomes)) for outcomes, _ in cases] == cases


def test_malformed_entries_of_skipped_are_omitted() -> None:
    text = " a/postInitSleep=NoCommand , b/c/d=X,=,/=,a/=X,x=,+3,\x1b,kubeletGate=MeshTraffic"
    assert parse_skipped(text) == (
        Skipped("a", "postInitSleep", "NoCommand"),
        Skipped("b/c", "d", "X"),
        Skipped("", "kubeletGate", "MeshTraffic"),
    )
    assert len(parse_skipped("a=B," * 1_000_000)) < 1_000
