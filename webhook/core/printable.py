"""Texts of tenants on terminals and pages.

Any user may write names, labels and messages that contain control characters. A terminal executes
them, characters for right-to-left text change the order of what a person reads, and two texts that
differ in invisible characters look the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
"""The invisible characters that `str.isprintable` accepts: those with Unicode's property
Default_Ignorable_Code_Point, and the empty Braille pattern."""


def is_printable(text: str) -> bool:
    """Return whether a reader sees all characters of a line, and sees them in their order."""
    return text.isprintable() and (text.isascii() or not _INVISIBLE.search(text))


def cut(text: str, max_characters: int) -> str:
    """Return the beginning of a text that is too long, with an ellipsis as the last character."""
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}…"


def printable(text: str) -> str:
    """Escape the characters of one line that are not printable, such as ESC to `\\x1b`."""
    return _escape(text, _escape_as_in_python)


def printable_json(text: str) -> str:
    """Escape the characters of a JSON text that are not printable, except line breaks.

    The values do not change. A valid text has such characters only inside its strings.
    """
    return _escape_lines(text, lambda each: json.dumps(each)[1:-1])


def printable_yaml(text: str) -> str:
    """Escape the characters of a YAML text that are not printable, except line breaks.

    The values do not change if the text has such characters only inside double quotes.
    """
    return _escape_lines(text, _escape_as_in_python)


def _escape_as_in_python(character: str) -> str:
    """Return an escape such as `\\x1b` or `\\u202e`, which YAML also has inside double quotes."""
    return ascii(character)[1:-1]


def _escape_lines(text: str, escape: Callable[[str], str]) -> str:
    return "\n".join(_escape(line, escape) for line in text.split("\n"))


def _escape(line: str, escape: Callable[[str], str]) -> str:
    if is_printable(line):
        return line
    return "".join(each if is_printable(each) else escape(each) for each in line)


def list_first(
    texts: Sequence[str],
    limit: int,
    separator: str = ", ",
    last: str = " and ",
    count: int | None = None,
) -> str:
    """Return the first texts and the number of the others, such as `a, b and 3 more`.

    `count` is the number of all texts. If it is None, `texts` has all of them.
    """
    more = (len(texts) if count is None else count) - limit
    listed = separator.join(texts[:limit])
    return f"{listed}{last}{more} more" if more > 0 else listed


def count_of(number: int, noun: str) -> str:
    """Return a number and a noun, such as `1 pod` and `2 pods`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
