"""A document of a YAML or JSON text, with the lines of its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

ValuePath: TypeAlias = tuple[str | int, ...]
"""The keys and indices that lead from a document to a value."""


class DocumentError(Exception):
    """Raised for text that is not YAML or JSON, and for a document that exceeds a limit.

    `line` counts from 1. It is 0 if the error concerns no particular line.
    """

    def __init__(self, source: str, line: int, message: str) -> None:
        where = f"{source}:{line}" if line else source
        super().__init__(f"{where}: {message}")
        self.source = source
        self.line = line
        self.message = message


class LineMap(NamedTuple):
    """The line of a list or mapping, and the lines of the values in it."""

    line: int
    inner: dict[str | int, LineMap | int]
    """By key or index: the line of a value without inner values, or the lines of the value."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a text: its value, its source, and the lines of its values.

    An object of an API server has no source and no lines.
    """

    value: Any
    source: str = ""
    lines: LineMap | int = 0

    def line(self, path: ValuePath) -> int:
        """Return the line of a value. If it is absent, return the line of its closest ancestor."""
        lines = self.inner(path, None).lines
        return lines if isinstance(lines, int) else lines.line

    def inner(self, path: ValuePath, value: Any) -> Document:
        """Return the value at a path as a document of its own."""
        lines = self.lines
        for step in path:
            if isinstance(lines, int):
                break
            lines = lines.inner.get(step, lines.line)
        return Document(value, self.source, lines)


def mapping_in(value: object, key: str) -> Mapping[str, Any]:
    """Return the mapping that a value has under a key, or an empty one."""
    inner = value.get(key) if isinstance(value, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}


def copy_value(value: Any) -> Any:
    """Return a deep copy of a document's value, many times faster than `copy.deepcopy`."""
    if isinstance(value, dict):
        return {key: copy_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [copy_value(inner) for inner in value]
    return value
