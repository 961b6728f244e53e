"""The rounds of checks until an installation is healthy, and the text of a report."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from webhook.cluster.errors import Unreachable
from webhook.inspect.doctor.model import DoctorReport, Finding, State
from webhook.inspect.doctor.run import repeat_until_healthy


def report(*states: State) -> DoctorReport:
    checks = tuple(Finding(check="x", state=each, result="") for each in states)
    return DoctorReport(cluster="c", installation="ns/name", checks=checks)


HEALTHY = report(State.OK, State.UNKNOWN)
FAULTY = report(State.OK, State.FAULT)
UNANSWERED = report(State.UNKNOWN)
REFUSED = Unreachable("connection refused")


async def rounds(answers: Sequence[DoctorReport | Unreachable], seconds: float) -> DoctorReport:
    left = iter(answers)

    async def diagnose() -> DoctorReport:
        answer = next(left)
        if isinstance(answer, Unreachable):
            raise answer
        return answer

    return await repeat_until_healthy(diagnose, seconds, pause_seconds=0.001)


@pytest.mark.parametrize(
    "answers",
    [
        [HEALTHY],
        [FAULTY, HEALTHY],
        [REFUSED, FAULTY, REFUSED, HEALTHY],
        [UNANSWERED, HEALTHY],
    ],
)
async def test_rounds_end_with_the_first_healthy_one(
    answers: Sequence[DoctorReport | Unreachable],
) -> None:
    assert await rounds(answers, 60) is HEALTHY


@pytest.mark.parametrize("last", [FAULTY, UNANSWERED, HEALTHY])
async def test_without_time_the_first_round_is_the_last(last: DoctorReport) -> None:
    assert await rounds([last], 0) is last


async def test_api_server_that_never_answers_is_an_error_when_the_time_is_over() -> None:
    with pytest.raises(Unreachable, match="connection refused"):
        await rounds([REFUSED], 0)


async def test_report_without_a_right_is_final() -> None:
    denied = report(State.NOT_LOOKED_AT)
    assert await rounds([denied], 60) is denied


def test_each_line_says_what_was_checked_the_result_and_where_its_repair_stands() -> None:
    checks = (
        Finding(check="replicas", state=State.OK, result="2 replicas exist"),
        Finding(check="lease", state=State.FAULT, result="x", repair="page#lease", command="look"),
        Finding(check="crd", state=State.NOT_LOOKED_AT, result="needs x", command="ask", right="x"),
    )
    report = DoctorReport(cluster="tests", installation="ns/podsettle", checks=checks)
    assert [label + text for label, text in report.lines()] == [
        "podsettle doctor: ns/podsettle in tests",
        "ok             replicas: 2 replicas exist",
        "FAULT          lease: x",
        "                 page#lease",
        "                 look",
        "not looked at  crd: needs x",
        "                 ask",
        "1 fault; 1 line is neither ok nor a fault",
    ]
    assert report.faults == 1
    assert not report.saw_nothing


def test_report_without_any_answer_saw_nothing() -> None:
    check = Finding(check="installation", state=State.NOT_LOOKED_AT, result="needs x")
    report = DoctorReport(cluster="tests", installation="", checks=(check,))
    assert report.saw_nothing
    assert next(iter(report.lines())) == ("", "podsettle doctor: tests")
