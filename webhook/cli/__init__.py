"""The command `podsettle`, also installed as `kubectl-settle`."""

from __future__ import annotations

import errno
import os
import re
import signal

if os.getpid() == 1:
    # Linux discards a signal for the first process of a container if the process has no handler.
    # The imports of `serve` take about a second, and only then the server sets its own handler.
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from webhook import __version__
from webhook.cli.server_extra import SERVER_COMMANDS, missing_extra, refusing_command
from webhook.process_memory import imports_excluded_from_gc

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


_COMMANDS = {
    "preview": "Show how podsettle would change the pods of workloads.",
    "check": "Check policies and other manifests for errors.",
    "scan": "Look for defects of nodes, and for pods that suffer from them.",
    "explain": "Say what podsettle did to a pod, why, and what it would do today.",
    "export": "Print policies in a form that the API server evaluates itself.",
    "doctor": "Check an installation, and say what to do about each fault.",
    "wait": "Wait until a container has ended, and exit with its exit code.",
    "logs": "Print a container's log, byte for byte, and resume after a broken connection.",
    "node-config": "Print configuration that nodes need for some policies.",
    "serve": "Answer admission reviews and previews over TLS.",
    "version": "Print the version of this program, and the image in the cluster.",
    "certs": "Create a development CA and a server certificate.",
    "completion": "Print the completion script for bash, zsh or fish.",
    "help": "Print the help of a command.",
}
"""The commands by name, with their lines in the list of commands. click would cut its own line.

To add the command NAME, add its line here, and write two files:

1. `webhook/cli/NAME.py` with a `click.command` of that name. It turns arguments into a call of
   `inspect`, `client`, `server` or `core`, and decides nothing itself. Its docstring is the help,
   which `docs/commands.md` repeats (`make docs`), and says what each exit code means. Options that
   others have are in `options.py`. Imports that take time stand in the function. An error in the
   input is an `InputError` (exit code 2). Output goes through `echo.py`, and reports for programs
   through its `emit`, with hints and warnings on standard error. `-v` prints more of the report.
2. `tests/integration/cli/test_NAME.py` with its output, exit codes 0, 1 and 2, and each error. A
   command that looks at a cluster has a module in `tests/e2e/cli/` too.
"""

# click turns these into messages and exit codes. It exits quietly if a pipe is broken.
_ERRORS_OF_CLICK = (
    click.ClickException, click.Abort, click.exceptions.Exit, EOFError, BrokenPipeError
)  # fmt: skip
_INTERNAL_ERROR = 2
"""The exit code. Python's own, 1, means that `scan`, `check` or `doctor` has found something."""
_NO_SPACE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
"""The errors of a full or broken disk, to which standard output may lead."""
_FLAG_WITH_VALUE = re.compile(r"(-[A-Za-z])=(.*)", re.DOTALL)
_KUBECTL_FLAGS = frozenset(
    ("-n", "--namespace", "--kubeconfig", "--context", "--as", "--as-group", "--request-timeout")
)
"""The flags that may stand before the command, as in kubectl. Each takes a value."""


class ReportingGroup(click.Group):
    """A group of commands that reports internal errors with an exit code of their own."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command line. Exit with 2 if the disk of the output is full."""
        try:
            return super().main(*args, **options)
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            from webhook.cli.echo import echo_message

            echo_message(f"the output cannot be written: {error.strerror}")
            # At its end, Python would write the rest again, and print a traceback.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise SystemExit(_INTERNAL_ERROR) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Print the traceback of an internal error, and exit with 2."""
        try:
            return super().invoke(ctx)
        except _ERRORS_OF_CLICK:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _NO_SPACE:
                raise
            import traceback

            from webhook.cli.echo import echo, echo_message

            for line in traceback.format_exc().splitlines():
                echo(line, err=True)
            what = f"internal error: {type(error).__name__}"
            echo_message(f"{what}: please report it with the lines above")
            ctx.exit(_INTERNAL_ERROR)


class _LazyGroup(ReportingGroup):
    """A group that imports a command when it is used, so that no command imports all others.

    click's documentation describes this under "Lazily Loading Subcommands".
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a command, or return None if there is no such command."""
        if cmd_name not in _COMMANDS:
            return None
        if cmd_name in SERVER_COMMANDS and (reason := missing_extra()):
            return refusing_command(cmd_name, reason)
        name = cmd_name.replace("-", "_")
        try:
            with imports_excluded_from_gc():
                command: click.Command = getattr(import_module(f"webhook.cli.{name}"), name)
        except ImportError as error:
            reason = f"cannot use a package that is installed here: {error}"
            return refusing_command(cmd_name, reason)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, and also two forms of kubectl: `-n=ci scan` and `-n ci scan`.

        click would take `=ci` as the value of `-n`, and flags before a command as those of the
        group. Return the arguments that are left for the command.
        """
        words: list[str] = []
        for word in args:
            found = _FLAG_WITH_VALUE.fullmatch(word)
            words += found.groups() if found else [word]
        flags: list[str] = []
        while words and words[0].partition("=")[0] in _KUBECTL_FLAGS:
            length = 1 if "=" in words[0] else 2
            flags, words = flags + words[:length], words[length:]
        try:
            return super().parse_args(ctx, [*words[:1], *flags, *words[1:]])
        except click.NoSuchOption as error:
            name = error.option_name
            text = f"No such option {name!r}: flags follow the command: podsettle COMMAND {name}."
            raise click.NoSuchOption(name, text, error.possibilities, error.ctx) from None

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of commands without importing them. Long lines are wrapped, not cut."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin with a text, without importing them, and the options."""
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(name, help=short_help)
            for name, short_help in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]


@click.group(
    cls=_LazyGroup,
    commands=dict.fromkeys(_COMMANDS, click.Command(None)),  # Their names, for similar ones.
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.version_option(__version__, prog_name="podsettle")
@click.pass_context
def main(context: click.Context) -> None:
    """Change new pods to avoid known races in container runtimes and the kubelet.

    Exit codes: 0 success; 1 a problem or a change was found; 2 an error. `wait` exits with the exit
    code of the container. The help of `wait` and `logs` lists their codes.

    The output is coloured in a terminal. NO_COLOR in the environment switches colours off, and
    FORCE_COLOR switches them on.
    """
    # Without a handler of podsettle, Python would print warnings of libraries as they are.
    if context.invoked_subcommand != "serve":  # It has a format and a level of its own.
        from webhook.cli.logging import set_up_client_logging

        set_up_client_logging()
    # https://no-color.org and https://force-color.org: any value but the empty one counts.
    if os.environ.get("NO_COLOR"):
        context.color = False
    elif os.environ.get("FORCE_COLOR"):
        context.color = True
