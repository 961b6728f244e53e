"""The program `kubectl_complete-settle`, with which kubectl completes `kubectl settle`.

kubectl runs it with the words of the command line, and reads completions in the format of cobra
(kubernetes `staging/src/k8s.io/kubectl/pkg/cmd/plugin/plugin_completion.go`). Shells complete
`podsettle` itself by click's `_PODSETTLE_COMPLETE`.
"""

from __future__ import annotations

import sys

import click
from click.shell_completion import ShellComplete

from webhook.cli import main

# Directives of cobra (`completions.go`), which the last line names.
_FILES_ALLOWED, _NO_FILES, _DIRECTORIES_ONLY = 0, 4, 16


def kubectl_complete() -> None:
    """Print the completions of the last argument, one in each line, and the directive."""
    *words, incomplete = sys.argv[1:] or [""]
    items = ShellComplete(main, {}, "podsettle", "_PODSETTLE_COMPLETE").get_completions(
        words, incomplete
    )
    for item in items:
        if item.type == "plain":
            # The names and help texts of commands and options. A tab is part of the format.
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)  # noqa: TID251
    types = {item.type for item in items}
    other = _DIRECTORIES_ONLY if "dir" in types else _NO_FILES
    directive = _FILES_ALLOWED if "file" in types else other
    click.echo(f":{directive}")  # noqa: TID251
