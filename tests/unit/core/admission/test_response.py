"""Tests of the warnings and audit annotations of a decision."""

from __future__ import annotations

import json

import pytest

from webhook.core.admission.response import audit_annotations_for, warnings_for
from webhook.core.reasons import Outcome, Reason


@pytest.mark.parametrize(
    "reason",
    [
        Reason.APPLIED, Reason.WOULD_APPLY, Reason.ALREADY_SETTLED, Reason.NO_POLICY,
        Reason.NAMESPACE_DISABLED, Reason.PROTECTED_NAMESPACE, Reason.NOT_POD_CREATE,
        Reason.POD_OPTED_OUT, Reason.MIRROR_POD, Reason.WINDOWS_POD, Reason.NATIVE_SIDECAR,
        Reason.MESH_INIT_CONTAINER, Reason.LONG_RUNNING, Reason.NOT_NEEDED,
        Reason.NO_PERSISTENT_VOLUME,
    ],
)  # fmt: skip
def test_a_reason_that_needs_no_action_gives_no_warning(reason: Reason) -> None:
    assert warnings_for((Outcome(reason, "postInitSleep", "p", "a"),)) == []


def test_a_warning_names_the_remedy_the_reason_and_the_container() -> None:
    outcome = Outcome(Reason.NO_SHELL, "postInitSleep", "p", "prepare")
    assert warnings_for([outcome]) == [
        "podsettle: postInitSleep: NoShell: prepare: "
        "`delivery: Shell` is set, but the command does not start with a known shell."
    ]


def test_a_message_replaces_the_meaning_of_the_reason_in_a_warning() -> None:
    missing = Outcome(Reason.RUNTIME_CLASS_MISSING, "runtimeClass", "p", message="no such class")
    assert warnings_for((missing,)) == [
        "podsettle: runtimeClass: RuntimeClassMissing: no such class"
    ]


def test_a_warning_for_many_containers_names_three_and_counts_the_rest() -> None:
    outcomes = tuple(Outcome(Reason.NO_COMMAND, "postInitSleep", "p", f"c{n}") for n in range(40))
    (warning,) = warnings_for(outcomes)
    assert warning.startswith("podsettle: postInitSleep: NoCommand: c0, c1, c2 and 37 more: ")


SUBJECT = "podsettle: postInitSleep: NoCommand: a: "


@pytest.mark.parametrize("length", [1, 255, 256, 257, 10_000])
def test_a_long_warning_is_cut_to_256_characters(length: int) -> None:
    message = "m" * (length - len(SUBJECT))
    outcome = Outcome(Reason.NO_COMMAND, "postInitSleep", "p", "a", message=message or "m")
    (warning,) = warnings_for((outcome,))
    if length > 256:
        assert warning == f"{SUBJECT}{message}"[:253] + "..."
    else:
        assert warning == SUBJECT + (message or "m")


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


def test_a_warning_for_three_containers_names_all_three() -> None:
    outcomes = tuple(Outcome(Reason.NO_COMMAND, "postInitSleep", "p", name) for name in "abc")
    (warning,) = warnings_for(outcomes)
    assert warning.startswith("podsettle: postInitSleep: NoCommand: a, b, c: ")
