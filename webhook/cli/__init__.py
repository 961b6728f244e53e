"""The command `podsettle`, also installed as `kubectl-settle`."""

from __future__ import annotations

import os
import re
import signal

if os.getpid() == 1:
    # Linux discards a signal for the first process of a container if the process has no handler.
    # The imports of `serve` take about a second, and only then the server sets its own handler.
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))

from importlib import import_module
from typing import TYPE_CHECKING

import click

from webhook import __version__
from webhook.cli.internal_errors import ReportingGroup
from webhook.cli.server_extra import SERVER_COMMANDS, missing_packages, refusing_command
from webhook.process_memory import imports_excluded_from_gc

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


# By name: a line for the list of commands. A line of click's own would be cut.
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

_FLAG_WITH_VALUE = re.compile(r"(-[A-Za-z])=(.*)", re.DOTALL)
_KUBECTL_FLAGS = frozenset(
    ("-n", "--namespace", "--kubeconfig", "--context", "--as", "--as-group", "--request-timeout")
)
"""The flags that may stand before the command, as in kubectl. Each takes a value."""


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
        if cmd_name in SERVER_COMMANDS and (missing := missing_packages()):
            return refusing_command(cmd_name, missing)
        name = cmd_name.replace("-", "_")
        with imports_excluded_from_gc():
            command: click.Command = getattr(import_module(f"webhook.cli.{name}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that arguments name. The error names similar commands."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(
                error.command_name, possibilities=_COMMANDS, ctx=ctx
            ) from None

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
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
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
