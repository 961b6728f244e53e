"""The output of commands. No other module of the CLI writes to standard output or standard error.

Names, messages and errors come from tenants, registries and API servers. They may contain control
characters, which a terminal executes, and line breaks, with which a message forges another one. So
every text is escaped here. The colours of podsettle are added after that.

Two modules write what other programs read: `logs` copies the bytes of a log as kubectl does, and
`kubectl_completion` writes the format of cobra.
"""

from __future__ import annotations

import sys
from typing import NamedTuple, TypeAlias

import click

from webhook.core.printable import printable, printable_json


class Styled(NamedTuple):
    """A text with a colour."""

    text: str
    colour: str | None = None
    bold: bool = False


Part: TypeAlias = str | Styled


def echo(*parts: Part, err: bool = False) -> None:
    """Print one line. Line breaks in it are escaped, too."""
    _print("".join(_with_style(part, printable(_text_of(part))) for part in parts) + "\n", err)


def echo_text(*parts: Part, err: bool = False) -> None:
    """Print a text that consists of lines. The line breaks in it remain."""
    _print("".join(_with_style(part, _printable_lines(_text_of(part))) for part in parts), err)


def echo_json(text: str) -> None:
    """Print a JSON document. Characters are escaped as JSON escapes them, so its values remain."""
    _print(f"{printable_json(text.rstrip())}\n", err=False)


def echo_message(text: str) -> None:
    """Print one line about the work of a command to standard error."""
    echo(f"podsettle: {text}", err=True)


class ProgressLine:
    """A line on standard error that says how far a command is, if that is a terminal."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()  # noqa: TID251 (nothing is written)
        self._shown = False

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._is_terminal:
            self._shown = True
            self._write(printable(text))

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            self._write("")

    def _write(self, text: str) -> None:
        # Without `color`, click would remove the code that clears the line. It is no colour.
        click.echo(f"\r\x1b[K{text}", err=True, nl=False, color=True)  # noqa: TID251


def _text_of(part: Part) -> str:
    return part if isinstance(part, str) else part.text


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def _with_style(part: Part, text: str) -> str:
    if isinstance(part, str) or not (part.colour or part.bold):
        return text
    return click.style(text, fg=part.colour, bold=part.bold or None)


def _print(text: str, err: bool) -> None:
    click.echo(text, nl=False, err=err)  # noqa: TID251
