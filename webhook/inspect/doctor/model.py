"""The result of `podsettle doctor`: one line for each thing that was checked."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from webhook.cluster.unread import NotAllowedError
from webhook.inspect.cluster_flags import ClusterFlags, Command


class State(StrEnum):
    """The state of one check."""

    OK = "ok"
    FAULT = "fault"
    """Something does not work, or stops working with the next failure."""
    WARNING = "warning"
    NOT_LOOKED_AT = "not_looked_at"
    """The user lacks the right to read what the check needs."""
    UNKNOWN = "unknown"
    """The check has no answer, for example because another fault prevents it."""


class Advice(msgspec.Struct, frozen=True):
    """What to do about a result."""

    sentence: str
    commands: tuple[Command, ...] = ()
    """The commands that mend the fault, in their order. Words in capitals, and the files `tls.crt`,
    `tls.key` and `ca.crt`, stand for values of the user."""

    def printed(self, flags: ClusterFlags) -> PrintedAdvice:
        """Return the advice with commands for the cluster that the user chose."""
        return PrintedAdvice(self.sentence, tuple(map(flags.command, self.commands)))


class PrintedAdvice(msgspec.Struct, frozen=True):
    """What to do about a line of the report."""

    sentence: str
    commands: tuple[str, ...] = ()
    """The commands as a shell reads them."""


class Result(msgspec.Struct, frozen=True):
    """One result of a check. A check has several if it looks at several objects."""

    state: State
    result: str
    """A clause without a capital and a period, such as `2 of 2 replicas are ready`."""
    advice: Advice | None = None
    right: str = ""
    """The right that the user lacks. Empty unless the state is NOT_LOOKED_AT."""


class CheckResult(msgspec.Struct, frozen=True):
    """A line of the report."""

    check: str
    state: State
    what: str
    """What was checked, as a clause that begins with `whether`."""
    result: str
    advice: PrintedAdvice | None = None
    right: str = ""


class DoctorReport(msgspec.Struct, frozen=True, rename="camel"):
    """All lines, and the installation that they are about."""

    cluster: str
    """The context and the address of the API server."""
    installation: str
    """`NAMESPACE/NAME` of the Deployment. Empty if there is none."""
    checks: tuple[CheckResult, ...]

    @property
    def faults(self) -> int:
        """The number of faults."""
        return sum(each.state is State.FAULT for each in self.checks)

    @property
    def saw_nothing(self) -> bool:
        """Whether no line says anything about the installation."""
        return all(each.state in (State.NOT_LOOKED_AT, State.UNKNOWN) for each in self.checks)

    @property
    def is_unanswered(self) -> bool:
        """Whether the API server gave no usable answer to any check."""
        return all(each.state is State.UNKNOWN for each in self.checks)


def ok(result: str) -> Result:
    """Return a result without a problem."""
    return Result(State.OK, result)


def fault(result: str, sentence: str, *commands: Command) -> Result:
    """Return a fault, with a sentence and commands that mend it."""
    return Result(State.FAULT, result, Advice(sentence, commands))


def warning(result: str, sentence: str, *commands: Command) -> Result:
    """Return a warning, with a sentence and commands."""
    return Result(State.WARNING, result, Advice(sentence, commands))


def not_looked_at(error: NotAllowedError) -> Result:
    """Return the result of a check that needs a right that the user lacks."""
    advice = Advice("This command shows whether you have the right.", (error.right.command,))
    return Result(State.NOT_LOOKED_AT, str(error), advice, str(error.right))


def unknown(result: str) -> Result:
    """Return a result of a check that has no answer, and why."""
    return Result(State.UNKNOWN, result)
