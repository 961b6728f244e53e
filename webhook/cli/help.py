"""The command `podsettle help`, as kubectl has it."""

from __future__ import annotations

import click

from webhook.cli.echo import echo_text


def _complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    root = context.find_root()
    group = root.command
    names = group.list_commands(root) if isinstance(group, click.Group) else []
    return [name for name in names if name.startswith(incomplete)]


@click.command()
@click.argument("command", nargs=-1, shell_complete=_complete)
def help(command: tuple[str, ...]) -> None:
    """Print the help of podsettle, or of a command.

    `podsettle help scan` prints the same as `podsettle scan --help`.
    """
    context = click.get_current_context().find_root()
    found = context.command
    for name in command:
        inner = None
        if isinstance(found, click.Group):
            _, inner, _ = found.resolve_command(context, [name])
        if inner is None:
            raise click.UsageError(f"No such command {' '.join(command)!r}.", context)
        found, context = inner, click.Context(inner, parent=context, info_name=name)
    echo_text(f"{found.get_help(context)}\n")
