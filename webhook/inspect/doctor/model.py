"""The report of `podsettle doctor`, one finding for each thing that was checked, and its text."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from webhook.core.types import CamelCaseModel


class State(StrEnum):
    """The state of one finding."""

    OK = "ok"
    FAULT = "fault"
    """Something does not work, or stops working with the next failure."""
    WARNING = "warning"
    NOT_LOOKED_AT = "not_looked_at"
    """The user lacks the right to read what the check needs."""
    UNKNOWN = "unknown"
    """The check has no answer, for example because another fault prevents it."""

    @property
    def label(self) -> str:
        """The state in the text of a report."""
        return "FAULT" if self is State.FAULT else self.value.replace("_", " ")


_WIDTH = max(len(each.label) for each in State)


class Finding(CamelCaseModel):
    """One result of a check. A check has several if it looks at several objects."""

    check: str = ""
    """The name of the check. A check leaves it out if the finding has its own name."""
    state: State
    result: str
    """A clause without a capital and a period, such as `2 replicas exist`."""
    repair: str = ""
    """The page and the section that say what to do about a fault or a warning. A check gives only
    the section, and leaves it out if it has the name of the check."""
    command: str = ""
    """A command that reads more. Empty if there is none."""
    right: str = ""
    """The right that the user lacks. Empty unless the state is NOT_LOOKED_AT."""


class DoctorReport(CamelCaseModel):
    """All findings, and the installation that they are about."""

    cluster: str
    """The context and the address of the API server."""
    installation: str
    """`NAMESPACE/NAME` of the Deployment. Empty if there is none."""
    checks: tuple[Finding, ...]

    @property
    def faults(self) -> int:
        """The number of faults."""
        return sum(each.state is State.FAULT for each in self.checks)

    @property
    def saw_nothing(self) -> bool:
        """Whether no finding says anything about the installation."""
        return {each.state for each in self.checks} <= {State.NOT_LOOKED_AT, State.UNKNOWN}

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of the text: a label of equal width, which may be blank, and a text.

        The texts are not escaped: they may contain control characters.
        """
        where = f"{self.installation} in " if self.installation else ""
        yield "", f"podsettle doctor: {where}{self.cluster}"
        for each in self.checks:
            yield f"{each.state.label:{_WIDTH}}", f"  {each.check}: {each.result}"
            for more in filter(None, (each.repair, each.command)):
                yield " " * _WIDTH, f"    {more}"
        others = sum(each.state not in (State.OK, State.FAULT) for each in self.checks)
        summary = {0: "no fault", 1: "1 fault"}.get(self.faults, f"{self.faults} faults")
        count = "1 line is" if others == 1 else f"{others} lines are"
        yield "", summary + f"; {count} neither ok nor a fault" * bool(others)


def ok(result: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(state=State.OK, result=result)


def fault(result: str, command: str = "") -> Finding:
    """Return a fault, and a command that reads more."""
    return Finding(state=State.FAULT, result=result, command=command)


def warning(result: str, command: str = "") -> Finding:
    """Return a warning, and a command that reads more."""
    return Finding(state=State.WARNING, result=result, command=command)


def unknown(result: str) -> Finding:
    """Return a finding of a check that has no answer, and why."""
    return Finding(state=State.UNKNOWN, result=result)
