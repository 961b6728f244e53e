"""Rounds of checks until an installation is healthy."""

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
