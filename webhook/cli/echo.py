"""The output of commands. No other module of the CLI writes to standard output or standard error.

Names, messages and errors come from tenants, registries and API servers. They may contain control
characters, which a terminal executes, and line breaks, with which a message forges another one. So
every text is escaped here. The colours of podsettle are added after that.

Two modules write what other programs read: `logs` copies the bytes of a log as kubectl does, and
`kubectl_completion` writes the format of cobra.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import click

from webhook.core.printable import printable, printable_json

if TYPE_CHECKING:
    import rich.progress
    from pydantic import BaseModel


class Styled(NamedTuple):
    """A text with a colour."""

    text: str
    colour: str | None = None
    bold: bool = False


Part: TypeAlias = str | Styled


def echo(*parts: Part, err: bool = False) -> None:
    """Print one line. Line breaks in it are escaped, too."""
    _print("".join(map(_escaped, parts)) + "\n", err)


def echo_text(*parts: str, err: bool = False) -> None:
    """Print a text that consists of lines. The line breaks in it remain."""
    _print("\n".join(map(printable, "".join(parts).split("\n"))), err)


def emit(report: BaseModel | list[Any] | dict[str, Any], output: str) -> None:
    """Print a report for programs as `json` or `yaml`. The keys of a model are in camelCase."""
    if isinstance(report, list | dict):
        echo_document(json.dumps(report, indent=2), output)
    else:
        echo_document(report.model_dump_json(by_alias=True, indent=2), output)


def echo_document(text: str, output: str) -> None:
    """Print a JSON document, or the same as YAML if `output` is `yaml`.

    Characters are escaped as JSON escapes them, so the values remain.
    """
    if output != "yaml":
        _print(f"{printable_json(text.rstrip())}\n", err=False)
        return
    # Imported here, because few commands print YAML. All but ASCII is escaped, as in JSON.
    import yaml

    echo_text(yaml.safe_dump(json.loads(text), sort_keys=False, width=100))


def echo_message(text: str) -> None:
    """Print one line about the work of a command to standard error."""
    echo(f"podsettle: {text}", err=True)


class Progress:
    """A progress bar on standard error, if that is a terminal and the work takes long.

    Use it with `with`, which removes the bar.
    """

    def __init__(self, delay_seconds: float = 2.0, interval_seconds: float = 0.1) -> None:
        """Let the bar appear after `delay_seconds`. It is drawn every `interval_seconds`."""
        self._is_terminal = sys.stderr.isatty()  # noqa: TID251 (nothing is written)
        self._next_draw = time.monotonic() + delay_seconds
        self._interval_seconds = interval_seconds
        self._bar: rich.progress.Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, label: str, done: int, length: int | None) -> None:
        """Draw the bar of the work with this label. `length` is None if it is not known."""
        if not self._is_terminal or time.monotonic() < self._next_draw:
            return
        self._next_draw = time.monotonic() + self._interval_seconds
        if self._bar is None:
            # Imported here, because the import takes a tenth of a second, and most work is short.
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = TextColumn("{task.description}", markup=False), BarColumn()
            console = Console(stderr=True)
            # A thread of rich would draw while a command prints.
            self._bar = Progress(
                *columns, MofNCompleteColumn(), console=console, auto_refresh=False, transient=True
            )
            self._bar.start()
        tasks = {task.description: task.id for task in self._bar.tasks if task.total == length}
        if (task_id := tasks.get(text := printable(label))) is None:
            for each in self._bar.task_ids:
                self._bar.remove_task(each)
            task_id = self._bar.add_task(text, total=length)
        self._bar.update(task_id, completed=done, refresh=True)


def _escaped(part: Part) -> str:
    if isinstance(part, str):
        return printable(part)
    text = printable(part.text)
    if not (part.colour or part.bold):
        return text
    return click.style(text, fg=part.colour, bold=part.bold or None)


def _print(text: str, err: bool) -> None:
    click.echo(text, nl=False, err=err)  # noqa: TID251
