"""The command `podsettle completion`, which prints click's completion script for a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from webhook.cli.echo import echo_text
from webhook.cli.options import InputError


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script with which a shell completes podsettle's commands and their values.

    \b
    bash:  source <(podsettle completion bash)
    zsh:   source <(podsettle completion zsh)
    fish:  podsettle completion fish | source

    Add the line to ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish. bash needs version 4.4.
    kubectl completes `kubectl settle` without it.
    """
    script = get_completion_class(shell)
    if script is None:
        raise InputError(f"click has no script for {shell}")
    complete = script(context.find_root().command, {}, "podsettle", "_PODSETTLE_COMPLETE")
    echo_text(complete.source())
