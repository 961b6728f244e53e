"""Internal errors of commands. Their exit code differs from that of a result."""

from __future__ import annotations

from typing import Any

import click

from webhook.cli.echo import echo, echo_message

_EXIT_CODE = 2
"""Python exits with 1, which means that `scan`, `check` or `doctor` has found something."""
# click turns these into messages and exit codes.
_ERRORS_OF_CLICK = (click.ClickException, click.Abort, click.exceptions.Exit, EOFError)


class ReportingGroup(click.Group):
    """A group of commands that reports internal errors with an exit code of their own."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Print the traceback of an internal error, and exit with 2."""
        try:
            return super().invoke(ctx)
        except _ERRORS_OF_CLICK:
            raise
        except BrokenPipeError:
            raise  # click exits quietly if the reader of the output has ended.
        except Exception as error:
            import traceback

            for line in traceback.format_exc().splitlines():
                echo(line, err=True)
            what = f"internal error: {type(error).__name__}"
            echo_message(f"{what}: please report it with the lines above")
            ctx.exit(_EXIT_CODE)
