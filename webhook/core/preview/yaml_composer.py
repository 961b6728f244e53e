"""Builds a document from the events of a YAML parser, without recursion.

Nodes (`yaml.compose`) would be less code, but three things forbid them. PyYAML's composer overflows
the C stack on deep nesting, which kills the process. It builds the nodes of a whole document before
a limit applies: 4 MiB of short values take 603 MiB and 10.6 s, and 50 MiB and 3 s with events. And
it refuses a second anchor of the same name, which YAML permits.

The builder's time and memory are in proportion to the length of the text. For that, it bounds the
copies that aliases and merge keys make in the whole text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from webhook.core.preview.document import (
    Document,
    DocumentError,
    LineMap,
    ValuePath,
)
from webhook.core.preview.yaml_scalars import (
    json_key,
    resolve_scalar,
    resolve_tagged,
    unknown_tag_message,
)

_MAX_DEPTH = 200
"""The maximum nesting. Recursive functions, such as `copy_value`, rely on it."""
_TOO_DEEP = "nested too deeply"
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


@dataclass(slots=True)
class CopyBudget:
    """Makes the copies of aliases and merge keys in a text, and bounds their total size."""

    values: int = 0
    characters: int = 0

    def copy(self, value: Any, depth: int) -> Any:
        """Return a deep copy of a value around which `depth` levels are open.

        Raises ValueError for a copy that is too large or nests too deeply.
        """
        self.count(1, value if isinstance(value, str) else "")
        if not isinstance(value, dict | list):
            return value
        if depth == _MAX_DEPTH:
            raise ValueError(_TOO_DEEP)
        if isinstance(value, list):
            return [self.copy(inner, depth + 1) for inner in value]
        self.count(0, *value)
        return {key: self.copy(inner, depth + 1) for key, inner in value.items()}

    def count(self, values: int, *texts: str) -> None:
        """Count a part of a copy. Raises ValueError if the copies are too large."""
        self.values += values
        self.characters += sum(map(len, texts))
        if self.values > _MAX_COPIED_VALUES or self.characters > _MAX_COPIED_CHARACTERS:
            raise ValueError(
                f"aliases and merge keys copy more than {_MAX_COPIED_VALUES} values or "
                f"{_MAX_COPIED_CHARACTERS} characters"
            )


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
        self._anchors: dict[str, Any] = {}
        """The latest value with each anchor. An _OpenCollection if its end is not read yet."""
        self._value_count = 0

    def feed(self, event: yaml.Event) -> None:
        """Add the next event of the document. Raises DocumentError."""
        line = event.start_mark.line + 1 if event.start_mark else 0
        try:
            if isinstance(event, yaml.CollectionEndEvent):
                self._close()
            elif isinstance(event, yaml.AliasEvent):
                self._append(self._copy_alias(event), line)
            elif isinstance(event, yaml.ScalarEvent):
                self._add_scalar(event, line)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._open(event, line)
        except ValueError as error:
            raise self._make_error(line, str(error)) from None

    def _open(self, event: yaml.CollectionStartEvent, line: int) -> None:
        """Start a list or mapping."""
        if self._expects_key():
            in_braces = isinstance(event, yaml.MappingStartEvent) and event.flow_style
            raise ValueError(_TEMPLATE_MESSAGE if in_braces else "a key has to be a plain value")
        if len(self._stack) == _MAX_DEPTH:
            raise ValueError(_TOO_DEEP)
        if event.tag not in (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise ValueError(unknown_tag_message(event.tag))
        value: list[Any] | dict[str, Any] = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        self._count_value()
        opened = _OpenCollection(value, line, event.anchor)
        if opened.anchor is not None:
            self._anchors[opened.anchor] = opened
        self._stack.append(opened)

    def _close(self) -> None:
        """End the innermost open collection, and add it to the collection around it."""
        closed = self._stack.pop()
        value = closed.value
        if isinstance(value, dict) and closed.merged_values:
            value = closed.merged_values | value
        if closed.anchor is not None and self._anchors[closed.anchor] is closed:
            self._anchors[closed.anchor] = value
        self._append(value, closed.line, closed.lines)

    def _add_scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        """Add a scalar, which is a key or a value. Raises ValueError."""
        plain = event.implicit[0] and event.tag in (None, "!")
        if self._expects_key():
            top = self._stack[-1]
            if plain and event.value == "<<":
                if top.has_merge_key:
                    raise ValueError("duplicate key '<<'")
                top.merging = top.has_merge_key = True
                top.key, top.key_line = "<<", line
                return
            key = json_key(resolve_scalar(event.value) if plain else event.value)
            if key in top.value:
                raise ValueError(f"duplicate key {key!r}")
            top.key, top.key_line = key, line
            if event.anchor is not None:
                self._anchors[event.anchor] = key
            return
        value = resolve_scalar(event.value) if plain else resolve_tagged(event)
        self._count_value()
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        self._append(value, line)

    def _copy_alias(self, event: yaml.AliasEvent) -> Any:
        """Return a copy of the value to which an alias refers. Raises ValueError."""
        if self._expects_key():
            raise ValueError("a key has to be a plain value")
        if event.anchor not in self._anchors:
            raise ValueError(f"not YAML: found undefined alias {event.anchor!r}")
        anchored = self._anchors[event.anchor]
        if isinstance(anchored, _OpenCollection):
            raise ValueError("an alias that contains itself")
        return self._copies.copy(anchored, len(self._stack))

    def _append(
        self, value: Any, line: int, lines: dict[str | int, LineMap | int] | None = None
    ) -> None:
        """Add a finished value to the innermost open collection, or make it the document."""
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
        elif top.merging:
            self._merge(top, value, line)
            for key, inner in (lines or {}).items():
                top.lines.setdefault(key, inner)
        else:
            key = top.key or ""
            top.lines[key] = LineMap(top.key_line, lines) if lines else top.key_line
            top.value[key] = value
        top.key, top.merging = None, False

    def _merge(self, top: _OpenCollection, value: Any, line: int) -> None:
        """Record the keys to merge. If several mappings have a key, the first of them counts."""
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, dict):
                raise self._make_error(line, "`<<` merges mappings only")
            # A merge reads the keys a second time, at each level if merges are nested.
            self._copies.count(len(part))
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

    def _count_value(self) -> None:
        self._value_count += 1
        if self._value_count > _MAX_VALUES:
            raise ValueError(f"more than {_MAX_VALUES} values")

    def _make_error(self, line: int, message: str) -> DocumentError:
        return DocumentError(self._source, line, message)
