"""The text of a report."""

from __future__ import annotations

from webhook.inspect.doctor.model import DoctorReport, Finding, State


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
