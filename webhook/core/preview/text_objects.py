"""The objects of a text, one at a time: its documents, and the items of its lists.

The dump of a cluster is one List of tens of megabytes. The objects of a List in JSON are found
without decoding them, so that each reader decodes only what it needs. In a List in YAML, the
limits of `yaml_composer` hold for each object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from webhook.core.json_path import json_path
from webhook.core.pod import DECODE_ERRORS
from webhook.core.policy.validation_errors import ManifestProblem
from webhook.core.preview.document import Document, DocumentError
from webhook.core.preview.list_items import Steps, find_objects
from webhook.core.preview.yaml_documents import (
    SEVERAL_DOCUMENTS,
    iterate_documents,
    iterate_items,
)

Json: TypeAlias = bytes | msgspec.Raw
"""A value as JSON. A Raw is a part of its text."""

_MAX_MALFORMED_BYTES = 1024 * 1024
"""A longer text that begins as JSON and is not valid is not read as YAML, which takes a second for
each megabyte."""

_SEPARATOR = re.compile(rb"[ \t\n\r,]*")


class _List(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    items: list[msgspec.Raw] | None = None


class _Header(msgspec.Struct, rename="camel"):
    """What says which type an object has."""

    kind: str = ""
    api_version: str = ""


_decode_list = msgspec.json.Decoder(_List).decode
_decode_header = msgspec.json.Decoder(_Header).decode


class TextObject:
    """An object of a text, with its place."""

    def __init__(
        self, source: str, steps: Steps, header: _Header, part: Document | _JsonItem
    ) -> None:
        """`part` is the object itself, and `steps` lead to it in the text."""
        self.source = source
        """The name of the text."""
        self.kind = header.kind
        """Empty if the object names none."""
        self.api_version = header.api_version
        self._steps = steps
        self._part = part

    @property
    def is_parsed(self) -> bool:
        """Whether the object was parsed with its lines. Those of a list in JSON are not."""
        return isinstance(self._part, Document)

    @property
    def json(self) -> Json:
        """The object as JSON."""
        if isinstance(self._part, Document):
            return msgspec.json.encode(self._part.value)
        return self._part.raw

    @property
    def value(self) -> object:
        """The object, parsed or as msgspec.Raw."""
        return self._part.value if isinstance(self._part, Document) else self._part.raw

    @property
    def document(self) -> Document:
        """The object with the lines of its values. Raises DocumentError."""
        return self._part if isinstance(self._part, Document) else self._part.parse()

    @property
    def line(self) -> int:
        """The line where the object begins."""
        return self._part.line(()) if isinstance(self._part, Document) else self._part.line

    def problem(self, path: Steps, message: str) -> ManifestProblem:
        """Return a problem of the value at a path in the object. Raises DocumentError."""
        line = self.document.line(path)
        return ManifestProblem(self.source, line, message, json_path((*self._steps, *path)))


def iterate_objects(text: bytes, source: str) -> Iterator[TextObject]:
    """Yield the objects of a text in YAML or JSON.

    `source` names the text in errors. Raises DocumentError, possibly after some objects.
    """
    found = _json_list(text, source)
    if found is not None:
        yield from _items(text, source, found)
        return
    for document, path in iterate_items(text, source):
        for value, steps in find_objects(document.value):
            yield _parsed(document.inner(steps, value), (*path, *steps))


def _json_list(text: bytes, source: str) -> _List | None:
    """Return a list in JSON, or None for another text. Raises DocumentError."""
    beginning = text[:100].lstrip()
    if not beginning.startswith(b"{"):
        return None
    try:
        found = _decode_list(text)
    except msgspec.ValidationError:
        return None
    except DECODE_ERRORS as error:
        # A short text may be YAML, and the errors of its parser have a line.
        if len(text) <= _MAX_MALFORMED_BYTES or not beginning[1:].lstrip().startswith(b'"'):
            return None
        why = SEVERAL_DOCUMENTS if "trailing characters" in str(error) else error
        raise DocumentError(source, 0, f"not JSON: {why}") from None
    return found if found.kind.endswith("List") and found.items is not None else None


def _items(text: bytes, source: str, found: _List) -> Iterator[TextObject]:
    raw_items = found.items or ()
    lines = _Lines(text, raw_items)
    inner_kind = found.kind.removesuffix("List")
    for index, raw in enumerate(raw_items):
        item = _JsonItem(raw, source, lines.line_of, index, inner_kind, found.api_version)
        try:
            header = _decode_header(raw)
        except DECODE_ERRORS:
            header = _Header()
        header.kind = header.kind or inner_kind
        header.api_version = header.api_version or found.api_version
        yield from _objects_of(item, header)


def iterate_item(item: bytes, source: str, index: int, line: int) -> Iterator[TextObject]:
    """Yield the object of an item of a List in JSON, or the objects of an item that is a list.

    `line` is where the item begins. Raises DocumentError.
    """
    try:
        header = _decode_header(item)
    except msgspec.ValidationError:
        header = _Header()
    except DECODE_ERRORS as error:
        raise DocumentError(source, line, f"not JSON: {error}") from None
    of_list = _JsonItem(msgspec.Raw(item), source, lambda _: line, index, "", "")
    yield from _objects_of(of_list, header)


def _objects_of(item: _JsonItem, header: _Header) -> Iterator[TextObject]:
    steps = ("items", item.index)
    if header.kind and not header.kind.endswith("List"):
        yield TextObject(item.source, steps, header, item)
        return
    document = item.parse()
    for value, inner_steps in find_objects(document.value):
        yield _parsed(document.inner(inner_steps, value), (*steps, *inner_steps))


def _parsed(document: Document, steps: Steps) -> TextObject:
    value = document.value
    named = value if isinstance(value, Mapping) else {}
    kind, api_version = named.get("kind"), named.get("apiVersion")
    header = _Header(
        kind if isinstance(kind, str) else "", api_version if isinstance(api_version, str) else ""
    )
    return TextObject(document.source, steps, header, document)


class _Lines:
    """The lines of the items of a list in JSON.

    Its decoder does not say where an item begins. Items may be equal to others, or to a part of
    others, so their places are counted and not searched.
    """

    def __init__(self, text: bytes, items: Sequence[msgspec.Raw]) -> None:
        self._text = text
        self._items = items
        self._known: list[int] = []
        """The lines of the first items."""
        self._line, self._counted = 1, 0
        """The line of the last of them, and its position."""
        self._end = -1
        """The position behind the last of them. Negative before the first one."""

    def line_of(self, index: int) -> int:
        """Return the line where an item begins."""
        if self._end < 0:
            # The value of `items` as it is in the text. Only its bracket stands before an item.
            members = msgspec.json.decode(self._text, type=dict[str, msgspec.Raw])
            self._end = self._text.find(bytes(members["items"])) + 1
        for raw in self._items[len(self._known) : index + 1]:
            separator = _SEPARATOR.match(self._text, self._end)
            begin = separator.end() if separator else self._end
            self._line += self._text.count(b"\n", self._counted, begin)
            self._known.append(self._line)
            self._counted, self._end = begin, begin + len(raw)
        return self._known[index]


class _JsonItem:
    """An item of a list in JSON."""

    def __init__(
        self,
        raw: msgspec.Raw,
        source: str,
        line_of: Callable[[int], int],
        index: int,
        kind: str,
        api_version: str,
    ) -> None:
        """`kind` and `api_version` are those of an item that names none."""
        self.raw, self.source, self.index = raw, source, index
        self._line_of = line_of
        self._named = {"apiVersion": api_version, "kind": kind} if kind else {}

    @property
    def line(self) -> int:
        """The line where the item begins."""
        return self._line_of(self.index)

    def parse(self) -> Document:
        """Return the item with the lines of its values. Raises DocumentError."""
        # Empty lines in front give its values the lines that they have in the whole text.
        text = b"\n" * (self.line - 1) + bytes(self.raw)
        for document in iterate_documents(text, self.source):
            value: Any = document.value
            if isinstance(value, dict) and self._named and "kind" not in value:
                value = {**self._named, **value}
            return Document(value, document.source, document.lines)
        return Document(None, self.source, self.line)
