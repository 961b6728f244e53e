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
from typing import NamedTuple, Protocol, Self, TypeAlias

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


def echo_document(text: str, output: str) -> None:
    """Print a JSON document, or the same as YAML if `output` is `yaml`."""
    if output != "yaml":
        echo_json(text)
        return
    # Imported here, because few commands print YAML. All but ASCII is escaped, as in JSON.
    import yaml

    echo_text(yaml.safe_dump(json.loads(text), sort_keys=False, width=100))


def echo_message(text: str) -> None:
    """Print one line about the work of a command to standard error."""
    echo(f"podsettle: {text}", err=True)


class _Bar(Protocol):
    """The bar that `click.progressbar` returns."""

    def update(self, n_steps: int) -> None:
        """Draw the bar so many steps further."""


class Progress:
    """A progress bar on standard error, if that is a terminal and the work takes long.

    Use it with `with`, which removes the bar.
    """

    def __init__(self, delay_seconds: float = 2.0, interval_seconds: float = 0.1) -> None:
        """Let the bar appear after `delay_seconds`. It is drawn every `interval_seconds`."""
        self._is_terminal = sys.stderr.isatty()  # noqa: TID251 (nothing is written)
        self._next_draw = time.monotonic() + delay_seconds
        self._interval_seconds = interval_seconds
        self._bar: _Bar | None = None
        self._shown: tuple[str, int | None] = "", None
        self._position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, label: str, done: int, length: int | None) -> None:
        """Draw the bar of the work with this label. `length` is None if it is not known."""
        if not self._is_terminal or time.monotonic() < self._next_draw:
            return
        self._next_draw = time.monotonic() + self._interval_seconds
        if self._bar is None or self._shown != (label, length) or done < self._position:
            self.clear()
            # click's estimate of the time would not know how long the work took so far.
            self._bar = click.progressbar(
                iter(()),
                length,
                printable(label),
                show_eta=False,
                show_pos=True,
                file=sys.stderr,  # noqa: TID251 (the bar is no text of a tenant)
            )
            self._shown, self._position = (label, length), 0
        self._bar.update(done - self._position)
        self._position = done

    def clear(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar = None
            # click hides the cursor, and its own end of a bar would leave it in a line.
            # Without `color`, click would remove these codes. They are no colours.
            codes = "\r\x1b[K\x1b[?25h"
            click.echo(codes, err=True, nl=False, color=True)  # noqa: TID251


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
