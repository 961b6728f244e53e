"""The text of a report, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.core.printable import printable
from webhook.inspect.doctor.model import CheckResult, DoctorReport, State

_LABELS = {
    State.OK: "ok",
    State.FAULT: "FAULT",
    State.WARNING: "warning",
    State.NOT_LOOKED_AT: "not looked at",
    State.UNKNOWN: "unknown",
}
_WIDTH = max(map(len, _LABELS.values()))


def report_lines(report: DoctorReport) -> Iterator[tuple[str, str]]:
    """Yield the lines of a report: one for each result, and what to do below it.

    Each line has a label of equal width, which may be empty, and a text without control characters,
    because a terminal executes them.
    """
    for label, text in _lines(report):
        yield label, printable(text)


def _lines(report: DoctorReport) -> Iterator[tuple[str, str]]:
    where = f"{report.installation} in " if report.installation else ""
    yield "", f"podsettle doctor: {where}{report.cluster}"
    for line in report.checks:
        yield f"{_LABELS[line.state]:{_WIDTH}}", f"  {line.check}: {line.result}"
        for advice in _advice_lines(line):
            yield " " * _WIDTH, f"  {advice}"
    faults = report.faults
    others = [each for each in report.checks if each.state not in (State.OK, State.FAULT)]
    summary = "no fault" if not faults else "1 fault" if faults == 1 else f"{faults} faults"
    if others:
        count = "1 line is" if len(others) == 1 else f"{len(others)} lines are"
        summary += f"; {count} neither ok nor a fault"
    yield "", summary


def _advice_lines(line: CheckResult) -> Iterator[str]:
    if line.advice is not None:
        yield line.advice.sentence
        yield from (f"  {command}" for command in line.advice.commands)
