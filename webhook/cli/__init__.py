"""The command `podsettle`, also installed as `kubectl-settle`."""

from __future__ import annotations

import os
import signal

if os.getpid() == 1:
    # Linux discards a signal for the first process of a container if the process has no handler.
    # The imports of `serve` take about a second, and only then the server sets its own handler.
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))

from importlib import import_module

import click

from webhook import __version__
from webhook.process_memory import imports_excluded_from_gc

_COMMANDS = ("serve", "preview", "check", "wait", "logs", "node-config", "certs")


class _LazyGroup(click.Group):
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
        name = cmd_name.replace("-", "_")
        with imports_excluded_from_gc():
            command: click.Command = getattr(import_module(f"webhook.cli.{name}"), name)
        return command


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="podsettle")
def main() -> None:
    """Change new pods to avoid known races in container runtimes and the kubelet.

    Exit codes: 0 success; 1 a problem or a change was found; 2 an error. `wait` exits with the exit
    code of the container. The help of `wait` and `logs` lists their codes.
    """
