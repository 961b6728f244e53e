"""Exit codes of commands that fail with an exception."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from webhook.cli import ReportingGroup, main
from webhook.cli.backoff import report_errors
from webhook.cli.options import InputError
from webhook.client.retry import Backoff


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ValueError("year -12\x1b"), 2, "ValueError: year -12\\x1b"),
        (OverflowError("date value out of range"), 2, "OverflowError: date value out of range"),
        (FileNotFoundError("x"), 2, "internal error: FileNotFoundError"),
        (InputError("bad"), 2, "bad"),
        (click.exceptions.Exit(1), 1, ""),
        (click.Abort(), 1, "Aborted!"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_only_a_result_exits_with_one(error: Exception, code: int, text: str) -> None:
    @click.group(cls=ReportingGroup)
    def group() -> None:
        pass

    @group.command()
    def fail() -> None:
        raise error

    done = CliRunner().invoke(group, ["fail"])
    assert done.exit_code == code
    assert text in done.output


def test_unexpected_error_says_that_the_result_is_not_known() -> None:
    said = "^the exit code of p is not known: ValueError: a b$"
    with pytest.raises(InputError, match=said), report_errors(Backoff(), "the exit code of p"):
        raise ValueError("a\n b")


def test_command_line_reports_internal_errors() -> None:
    assert isinstance(main, ReportingGroup)
