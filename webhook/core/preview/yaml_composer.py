"""Builds a document from the events of a YAML parser, without recursion.

Nodes (`yaml.compose`) would be less code, but three things forbid them. PyYAML's composer overflows
the C stack on deep nesting, which kills the process. It builds the nodes of a whole document before
a limit applies: 4 MiB of short values take 603 MiB and 10.6 s, and 50 MiB and 3 s with events. And
it refuses a second anchor of the same name, which YAML permits.

The builder's time and memory are in proportion to the length of the text. For that, it counts the
size of an anchor's value while it reads the value, and bounds the copies that aliases and merge
keys make in the whole text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from webhook.core.preview.document import (
    Document,
    DocumentError,
    LineMap,
    ValuePath,
    copy_value,
)
from webhook.core.preview.yaml_scalars import (
    json_key,
    resolve_scalar,
    resolve_tagged,
    unknown_tag_message,
)

_MAX_DEPTH = 200
"""The maximum nesting. Recursive functions, such as `copy_value`, rely on it."""
_MAX_VALUES = 500_000
"""The maximum number of values in one document."""
_MAX_COPIED_VALUES = 10_000
"""The maximum number of values in all copies that aliases and merge keys make in a text. Callers
bound the length of the text, which does not include these copies."""
_MAX_COPIED_CHARACTERS = 256 * 1024
"""The maximum number of characters in these copies."""
_TEMPLATE_MESSAGE = (
    "a key has to be a plain value; text with '{{' is a template, not YAML: give the template's "
    "output, such as that of helm template"
)


class _Size(NamedTuple):
    """The size of a value, itself included."""

    values: int
    characters: int
    """The total length of its texts and keys."""
    depth: int
    """The number of its nesting levels. A scalar has 0."""


@dataclass(slots=True)
class _OpenCollection:
    """A list or mapping whose end has not been read."""

    value: list[Any] | dict[str, Any]
    line: int
    anchor: str | None
    lines: dict[str | int, LineMap | int] = field(default_factory=dict)
    key: str | None = None
    key_line: int = 0
    merging: bool = False
    """Whether the next value belongs to a merge key, `<<`."""
    has_merge_key: bool = False
    merged_values: dict[str, Any] = field(default_factory=dict)
    """The values to merge. Keys of the mapping itself take precedence."""
    # The size of the inner values so far, as in _Size.
    values: int = 1
    characters: int = 0
    depth: int = 1

    def add(self, value: Any, size: _Size | None) -> None:
        """Add the size of an inner value. `size` is None for a scalar."""
        if size is None:
            self.values += 1
            if isinstance(value, str):
                self.characters += len(value)
            return
        self.values += size.values
        self.characters += size.characters
        self.depth = max(self.depth, size.depth + 1)


@dataclass(slots=True)
class CopyBudget:
    """The total size of the copies that aliases and merge keys of a text have made."""

    values: int = 0
    characters: int = 0

    def add(self, size: _Size) -> bool:
        """Add the size of a copy. Return False if the copy must not be made."""
        self.values += size.values
        self.characters += size.characters
        return self.values <= _MAX_COPIED_VALUES and self.characters <= _MAX_COPIED_CHARACTERS


class DocumentBuilder:
    """Builds the value of one document, and the lines of its parts, from events."""

    def __init__(self, source: str, copies: CopyBudget, by_item: bool = False) -> None:
        """With `by_item`, the objects in the root's `items` become `item` one after the other."""
        self.root: Any = None
        self.lines: LineMap | int = 1
        self.item: tuple[Document, ValuePath] | None = None
        """The object that the last event has ended, and its path. The caller removes it."""
        self._source = source
        self._copies = copies
        self._by_item = by_item
        self._item_count = 0
        self._stack: list[_OpenCollection] = []
        self._anchors: dict[str, tuple[Any, _Size] | _OpenCollection] = {}
        """The latest value with each anchor, and its size. An _OpenCollection if its end has not
        been read yet."""
        self._value_count = 0

    def feed(self, event: yaml.Event) -> None:
        """Add the next event of the document."""
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.CollectionEndEvent):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._append(*self._copy_alias(event, line), line)
        elif isinstance(event, yaml.ScalarEvent):
            self._add_scalar(event, line)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open(event, line)

    def _open(self, event: yaml.CollectionStartEvent, line: int) -> None:
        """Start a list or mapping."""
        if self._expects_key():
            in_braces = isinstance(event, yaml.MappingStartEvent) and event.flow_style
            raise self._make_error(
                line, _TEMPLATE_MESSAGE if in_braces else "a key has to be a plain value"
            )
        if len(self._stack) == _MAX_DEPTH:
            raise self._make_error(line, "nested too deeply")
        if event.tag not in (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise self._make_error(line, unknown_tag_message(event.tag))
        value: list[Any] | dict[str, Any] = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        self._count_value(line)
        opened = _OpenCollection(value, line, event.anchor)
        if opened.anchor is not None:
            self._anchors[opened.anchor] = opened
        self._stack.append(opened)

    def _close(self) -> None:
        """End the innermost open collection, and add it to the collection around it."""
        closed = self._stack.pop()
        value = closed.value
        if isinstance(value, dict) and closed.merged_values:
            for key, inner in closed.merged_values.items():
                if key not in value:
                    closed.characters += len(key)
                    closed.add(inner, _measure(inner))
            value = closed.merged_values | value
        size = _Size(closed.values, closed.characters, closed.depth)
        if closed.anchor is not None and self._anchors[closed.anchor] is closed:
            self._anchors[closed.anchor] = value, size
        self._append(value, size, closed.line, closed.lines)

    def _add_scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        """Add a scalar, which is a key or a value."""
        plain = event.implicit[0] and event.tag in (None, "!")
        if self._expects_key():
            top = self._stack[-1]
            if plain and event.value == "<<":
                if top.has_merge_key:
                    raise self._make_error(line, "duplicate key '<<'")
                top.merging = top.has_merge_key = True
                top.key, top.key_line = "<<", line
                return
            key = json_key(self._resolve_plain(event.value, line) if plain else event.value)
            if key in top.value:
                raise self._make_error(line, f"duplicate key {key!r}")
            top.key, top.key_line = key, line
            top.characters += len(key)
            self._set_anchor(event.anchor, key)
            return
        value = (
            self._resolve_plain(event.value, line) if plain else self._resolve_tagged(event, line)
        )
        self._count_value(line)
        self._set_anchor(event.anchor, value)
        self._append(value, None, line)

    def _resolve_plain(self, text: str, line: int) -> Any:
        try:
            return resolve_scalar(text)
        except ValueError as error:
            raise self._make_error(line, str(error)) from None

    def _resolve_tagged(self, event: yaml.ScalarEvent, line: int) -> Any:
        try:
            return resolve_tagged(event)
        except ValueError as error:
            raise self._make_error(line, str(error)) from None

    def _copy_alias(self, event: yaml.AliasEvent, line: int) -> tuple[Any, _Size]:
        """Return a copy of the value to which an alias refers, and its size."""
        if self._expects_key():
            raise self._make_error(line, "a key has to be a plain value")
        anchored = self._anchors.get(event.anchor or "")
        if anchored is None:
            raise self._make_error(line, f"not YAML: found undefined alias {event.anchor!r}")
        if isinstance(anchored, _OpenCollection):
            raise self._make_error(line, "an alias that contains itself")
        value, size = anchored
        self._count_copy(size, line)
        if len(self._stack) + size.depth > _MAX_DEPTH:
            raise self._make_error(line, "nested too deeply")
        return copy_value(value), size

    def _append(
        self,
        value: Any,
        size: _Size | None,
        line: int,
        lines: dict[str | int, LineMap | int] | None = None,
    ) -> None:
        """Add a finished value to the innermost open collection, or make it the document.

        `size` is None for a scalar.
        """
        if not self._stack:
            self.root, self.lines = value, LineMap(line, lines) if lines else line
            return
        top = self._stack[-1]
        if self._by_item and self._is_list_of_objects():
            path = ("items", self._item_count)
            self._item_count += 1
            named = isinstance(value, dict) and isinstance(value.get("kind"), str)
            root = self._stack[0].value
            if named or (isinstance(root, dict) and root.get("kind") == "List"):
                inner = LineMap(line, lines) if lines else line
                self.item = Document(value, self._source, inner), path
                self._value_count = 0
                return
        if isinstance(top.value, list):
            top.lines[len(top.value)] = LineMap(line, lines) if lines else line
            top.value.append(value)
            top.add(value, size)
        elif top.merging:
            # A merge reads the value a second time, so it counts as a copy.
            self._count_copy(size or _measure(value), line)
            self._merge(top, value, line)
            for key, inner in (lines or {}).items():
                top.lines.setdefault(key, inner)
        else:
            key = top.key or ""
            top.lines[key] = LineMap(top.key_line, lines) if lines else top.key_line
            top.value[key] = value
            top.add(value, size)
        top.key, top.merging = None, False

    def _merge(self, top: _OpenCollection, value: Any, line: int) -> None:
        """Record the keys to merge. If several mappings have a key, the first of them counts."""
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, dict):
                raise self._make_error(line, "`<<` merges mappings only")
            for key, inner in part.items():
                top.merged_values.setdefault(key, inner)

    def _is_list_of_objects(self) -> bool:
        """Return whether the innermost open collection is `items` of the root.

        A list with an anchor is kept, because an alias may refer to it.
        """
        if len(self._stack) != 2 or self._stack[0].key != "items":
            return False
        items = self._stack[1]
        return isinstance(items.value, list) and items.anchor is None

    def _expects_key(self) -> bool:
        return (
            bool(self._stack)
            and isinstance(self._stack[-1].value, dict)
            and (self._stack[-1].key is None)
        )

    def _set_anchor(self, anchor: str | None, scalar: Any) -> None:
        if anchor is not None:
            self._anchors[anchor] = scalar, _measure(scalar)

    def _count_value(self, line: int) -> None:
        self._value_count += 1
        if self._value_count > _MAX_VALUES:
            raise self._make_error(line, f"more than {_MAX_VALUES} values")

    def _count_copy(self, size: _Size, line: int) -> None:
        if not self._copies.add(size):
            message = (
                f"aliases and merge keys copy more than {_MAX_COPIED_VALUES} values or "
                f"{_MAX_COPIED_CHARACTERS} characters"
            )
            raise self._make_error(line, message)

    def _make_error(self, line: int, message: str) -> DocumentError:
        return DocumentError(self._source, line, message)


def _measure(value: Any) -> _Size:
    """Return the size of a finished value."""
    if isinstance(value, dict):
        opened = _OpenCollection(value, 0, None, characters=sum(map(len, value)))
        for inner in value.values():
            opened.add(inner, _measure(inner))
        return _Size(opened.values, opened.characters, opened.depth)
    if isinstance(value, list):
        opened = _OpenCollection(value, 0, None)
        for inner in value:
            opened.add(inner, _measure(inner))
        return _Size(opened.values, opened.characters, opened.depth)
    return _Size(1, len(value) if isinstance(value, str) else 0, 0)
