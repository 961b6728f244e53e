"""The command `podsettle help`, as kubectl has it."""

from __future__ import annotations

import click


def _complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    root = context.find_root()
    names = root.command.list_commands(root) if isinstance(root.command, click.Group) else []
    return [name for name in names if name.startswith(incomplete)]


@click.command()
@click.argument("command", nargs=-1, shell_complete=_complete)
@click.pass_context
def help(context: click.Context, command: tuple[str, ...]) -> None:
    """Print the help of podsettle, or of a command.

    `podsettle help scan` prints the same as `podsettle scan --help`.
    """
    root = context.find_root()
    root.command.main([*command, "--help"], root.info_name)
