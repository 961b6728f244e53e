"""The objects of a text, one at a time: its documents, and the items of its lists.

The dump of a cluster is one List of tens of megabytes. The objects of a List in JSON are found
without decoding them, so that each reader decodes only what it needs. In a List in YAML, the
limits of `yaml_composer` hold for each object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import msgspec

from webhook.core.json_path import json_path
from webhook.core.pod import DECODE_ERRORS
from webhook.core.policy.validation_errors import ManifestProblem
from webhook.core.preview.document import Document, DocumentError, ValuePath
from webhook.core.preview.list_items import find_objects
from webhook.core.preview.yaml_documents import (
    SEVERAL_DOCUMENTS,
    in_utf8,
    iterate_items,
    load_documents,
)

Json: TypeAlias = bytes | msgspec.Raw
"""A value as JSON. A Raw is a part of its text."""

_MAX_MALFORMED_BYTES = 1024 * 1024
"""A longer text that begins as JSON and is not valid is not read as YAML, which takes a second for
each megabyte."""


class _Header(msgspec.Struct, rename="camel"):
    """What says which type an object has."""

    kind: str = ""
    api_version: str = ""


class _List(_Header):
    items: list[msgspec.Raw] | None = None


_decode_list = msgspec.json.Decoder(_List).decode
_decode_header = msgspec.json.Decoder(_Header).decode


class TextObject(NamedTuple):
    """An object of a text, with its place."""

    source: str
    """The name of the text."""
    steps: ValuePath
    """The steps that lead to the object in the text."""
    kind: str
    """Empty if the object names none."""
    api_version: str
    value: object
    """The object, parsed with its lines or as msgspec.Raw."""
    line: Callable[[], int]
    """Return the line where the object begins."""
    parse: Callable[[], Document]
    """Return the object with the lines of its values. Raises DocumentError."""

    @property
    def is_parsed(self) -> bool:
        """Whether the object was parsed with its lines. Those of a list in JSON are not."""
        return not isinstance(self.value, msgspec.Raw)

    @property
    def json(self) -> Json:
        """The object as JSON."""
        value = self.value
        return value if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)

    def problem(self, path: ValuePath, message: str) -> ManifestProblem:
        """Return a problem of the value at a path in the object. Raises DocumentError."""
        line = self.parse().line(path)
        return ManifestProblem(self.source, line, message, json_path((*self.steps, *path)))


def iterate_objects(text: bytes, source: str) -> Iterator[TextObject]:
    """Yield the objects of a text in YAML or JSON.

    `source` names the text in errors. Raises DocumentError, possibly after some objects.
    """
    text = in_utf8(text, source)  # With a mark, JSON would be read as YAML, which takes minutes.
    if (listed := _json_list(text, source)) is not None:
        found, lines = listed
        for index, raw in enumerate(found.items or ()):
            yield from _objects_of(raw, source, index, partial(lines.of, index), found)
        return
    for document, path in iterate_items(text, source):
        for value, steps in find_objects(document.value):
            yield _parsed(document.inner(steps, value), (*path, *steps))


def _json_list(text: bytes, source: str) -> tuple[_List, _ItemLines] | None:
    """Return a list in JSON with the lines of its items, or None for another text.

    Raises DocumentError.
    """
    beginning = text[:100].lstrip()
    if not beginning.startswith(b"{"):
        return None
    try:
        found = _decode_list(text)
        lines = _ItemLines(text, found.items or [])
    except msgspec.ValidationError:
        return None
    except DECODE_ERRORS as error:
        # A short text may be YAML, and the errors of its parser have a line.
        if len(text) <= _MAX_MALFORMED_BYTES or not beginning[1:].lstrip().startswith(b'"'):
            return None
        why = SEVERAL_DOCUMENTS if "trailing characters" in str(error) else error
        raise DocumentError(source, 0, f"not JSON: {why}") from None
    is_list = found.kind.endswith("List") and found.items is not None
    return (found, lines) if is_list else None


def iterate_item(item: bytes, source: str, index: int, line: int) -> Iterator[TextObject]:
    """Yield the object of an item of a List in JSON, or the objects of an item that is a list.

    `line` is where the item begins. Raises DocumentError.
    """
    yield from _objects_of(msgspec.Raw(item), source, index, lambda: line, _List("List"))


def _objects_of(
    raw: msgspec.Raw, source: str, index: int, read_line: Callable[[], int], around: _List
) -> Iterator[TextObject]:
    """Yield the object of an item, or the objects of one that is a list.

    `around` is the list. It says the kind of an item that names none. Raises DocumentError.
    """
    item_kind = around.kind.removesuffix("List")
    try:
        header = _decode_header(raw)
    except msgspec.ValidationError:
        header = _Header()
    except DECODE_ERRORS as error:
        raise DocumentError(source, read_line(), f"not JSON: {error}") from None
    kind, api_version = header.kind or item_kind, header.api_version or around.api_version

    def parse() -> Document:
        # Empty lines in front give its values the lines that they have in the whole text.
        line = read_line()
        documents = load_documents(b"\n" * (line - 1) + bytes(raw), source)
        if not documents:
            return Document(None, source, line)
        value: Any = documents[0].value
        if isinstance(value, dict) and item_kind and "kind" not in value:
            value = {"apiVersion": api_version, "kind": item_kind, **value}
        return Document(value, source, documents[0].lines)

    steps = ("items", index)
    if kind and not kind.endswith("List"):
        yield TextObject(source, steps, kind, api_version, raw, read_line, parse)
        return
    document = parse()
    for value, inner_steps in find_objects(document.value):
        yield _parsed(document.inner(inner_steps, value), (*steps, *inner_steps))


def _parsed(document: Document, steps: ValuePath) -> TextObject:
    value = document.value
    named = value if isinstance(value, Mapping) else {}
    kind, api_version = (
        text if isinstance(text := named.get(key), str) else "" for key in ("kind", "apiVersion")
    )
    line = partial(document.line, ())
    return TextObject(document.source, steps, kind, api_version, value, line, lambda: document)


class _ItemLines:
    """The lines of the items of a list in JSON, found when one of them is asked for.

    The decoder does not say where an item begins. Items may be equal to others, or to a part of
    others, so their places are counted and not searched.
    """

    def __init__(self, text: bytes, items: Sequence[msgspec.Raw]) -> None:
        """Raise one of DECODE_ERRORS for a member whose name is not UTF-8 text."""
        self._text, self._items = text, items
        # The value of `items` as it is in the text. Only its bracket stands before an item.
        self._members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])

    def of(self, index: int) -> int:
        """Return the line where an item begins."""
        return self._lines[index]

    @cached_property
    def _lines(self) -> list[int]:
        end, counted, lines = 0, 0, [1]
        for name, value in self._members.items():  # One in front may have the same value inside.
            end = self._text.find(bytes(value), end) + (1 if name == "items" else len(value))
            if name == "items":
                break
        for raw in self._items:
            begin = self._text.find(raw, end)  # Only a comma and spaces stand in front.
            lines.append(lines[-1] + self._text.count(b"\n", counted, begin))
            counted, end = begin, begin + len(raw)
        return lines[1:]
