"""The objects of a text, one at a time: its documents, and the items of its lists.

The dump of a cluster is one List of tens of megabytes. The objects of a List in JSON are found
without decoding them, so that each reader decodes only what it needs. In a List in YAML, the
limits of `yaml_composer` hold for each object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, TypeAlias

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
        self, source: str, steps: ValuePath, header: _Header, part: Document | _JsonItem
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

    def problem(self, path: ValuePath, message: str) -> ManifestProblem:
        """Return a problem of the value at a path in the object. Raises DocumentError."""
        line = self.document.line(path)
        return ManifestProblem(self.source, line, message, json_path((*self._steps, *path)))


def iterate_objects(text: bytes, source: str) -> Iterator[TextObject]:
    """Yield the objects of a text in YAML or JSON.

    `source` names the text in errors. Raises DocumentError, possibly after some objects.
    """
    text = in_utf8(text, source)  # With a mark, JSON would be read as YAML, which takes minutes.
    found = _json_list(text, source)
    if found is not None:
        yield from _items(source, _JsonList(text, found))
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


def _items(source: str, found: _JsonList) -> Iterator[TextObject]:
    for index, raw in enumerate(found.items):
        try:
            header = _decode_header(raw)
        except DECODE_ERRORS:
            header = _Header()
        named = {"apiVersion": found.api_version, "kind": found.item_kind}
        header.kind = header.kind or found.item_kind
        header.api_version = header.api_version or found.api_version
        item = _JsonItem(raw, source, index, partial(found.line_of, index), named)
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
    yield from _objects_of(_JsonItem(msgspec.Raw(item), source, index, lambda: line), header)


def _objects_of(item: _JsonItem, header: _Header) -> Iterator[TextObject]:
    steps = ("items", item.index)
    if header.kind and not header.kind.endswith("List"):
        yield TextObject(item.source, steps, header, item)
        return
    document = item.parse()
    for value, inner_steps in find_objects(document.value):
        yield _parsed(document.inner(inner_steps, value), (*steps, *inner_steps))


def _parsed(document: Document, steps: ValuePath) -> TextObject:
    value = document.value
    named = value if isinstance(value, Mapping) else {}
    kind, api_version = named.get("kind"), named.get("apiVersion")
    header = _Header(
        kind if isinstance(kind, str) else "", api_version if isinstance(api_version, str) else ""
    )
    return TextObject(document.source, steps, header, document)


class _JsonList:
    """A list in JSON, with the lines of its items.

    Its decoder does not say where an item begins. Items may be equal to others, or to a part of
    others, so their places are counted and not searched.
    """

    def __init__(self, text: bytes, found: _List) -> None:
        self._text = text
        self.items = found.items or []
        self.item_kind, self.api_version = found.kind.removesuffix("List"), found.api_version

    def line_of(self, index: int) -> int:
        """Return the line where an item begins."""
        return self._lines[index]

    @cached_property
    def _lines(self) -> list[int]:
        # The value of `items` as it is in the text. Only its bracket stands before an item.
        members = msgspec.json.decode(self._text, type=dict[str, msgspec.Raw])
        end, counted, lines = 0, 0, [1]
        for name, value in members.items():  # One in front may have the same value inside.
            end = self._text.find(bytes(value), end) + (1 if name == "items" else len(value))
            if name == "items":
                break
        for raw in self.items:
            begin = end + len(_SEPARATOR.match(self._text, end)[0])  # type: ignore[index]
            lines.append(lines[-1] + self._text.count(b"\n", counted, begin))
            counted, end = begin, begin + len(raw)
        return lines[1:]


class _JsonItem:
    """An item of a list in JSON."""

    def __init__(
        self,
        raw: msgspec.Raw,
        source: str,
        index: int,
        line_of: Callable[[], int],
        named: Mapping[str, str] | None = None,
    ) -> None:
        """`named` has the kind and the API version of an item that names none."""
        self.raw, self.source, self.index = raw, source, index
        self._line_of, self._named = line_of, named or {}

    @property
    def line(self) -> int:
        """The line where the item begins."""
        return self._line_of()

    def parse(self) -> Document:
        """Return the item with the lines of its values. Raises DocumentError."""
        # Empty lines in front give its values the lines that they have in the whole text.
        text = b"\n" * (self.line - 1) + bytes(self.raw)
        documents = load_documents(text, self.source)
        if not documents:
            return Document(None, self.source, self.line)
        value: Any = documents[0].value
        if isinstance(value, dict) and self._named.get("kind") and "kind" not in value:
            value = {**self._named, **value}
        return Document(value, self.source, documents[0].lines)
