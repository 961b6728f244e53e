"""The text of a report."""

from __future__ import annotations

from webhook.inspect.doctor.model import CheckResult, DoctorReport, PrintedAdvice, State
from webhook.inspect.doctor.text import report_lines


def test_each_line_says_what_was_checked_the_result_and_what_to_do() -> None:
    checks = (
        CheckResult("replicas", State.OK, "whether", "2 replicas exist"),
        CheckResult(
            "lease", State.FAULT, "whether", "it is gone", PrintedAdvice("Mend it.", ("mend",))
        ),
        CheckResult(
            "crd", State.NOT_LOOKED_AT, "whether", "needs x", PrintedAdvice("Ask.", ("ask",)), "x"
        ),
    )
    report = DoctorReport("tests", "ns/podsettle", checks)
    assert [label + text for label, text in report_lines(report)] == [
        "podsettle doctor: ns/podsettle in tests",
        "ok             replicas: 2 replicas exist",
        "FAULT          lease: it is gone",
        "               Mend it.",
        "                 mend",
        "not looked at  crd: needs x",
        "               Ask.",
        "                 ask",
        "1 fault; 1 line is neither ok nor a fault",
    ]
    assert report.faults == 1
    assert not report.saw_nothing


def test_line_has_no_control_character() -> None:
    check = CheckResult(
        "lease", State.FAULT, "whether", "x\x1b[2J", PrintedAdvice("\u202e", ("\r",))
    )
    lines = [text for _, text in report_lines(DoctorReport("tests", "", (check,)))]
    assert r"  lease: x\x1b[2J" in lines
    assert all(map(str.isprintable, lines))


def test_report_without_any_answer_saw_nothing() -> None:
    check = CheckResult("installation", State.NOT_LOOKED_AT, "whether", "needs x")
    report = DoctorReport("tests", "", (check,))
    assert report.saw_nothing
    assert next(iter(report_lines(report))) == ("", "podsettle doctor: tests")
