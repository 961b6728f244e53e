"""Reads the value of one document from the events of a YAML parser.

Nodes (`yaml.compose`) would be less code, but three things forbid them. PyYAML's composer overflows
the C stack on deep nesting, which kills the process. It builds the nodes of a whole document before
a limit applies: 4 MiB of short values take 603 MiB and 10.6 s, and 50 MiB and 3 s with events. And
it refuses a second anchor of the same name, which YAML permits.

The time and memory are in proportion to the length of the text. For that, the copies that aliases
and merge keys make in the whole text are bounded.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import yaml

from webhook.core.preview.document import Document, LineMap, ValuePath
from webhook.core.preview.yaml_scalars import (
    json_key,
    resolve_scalar,
    resolve_tagged,
    unknown_tag_message,
)

_MAX_DEPTH = 200
"""The maximum nesting. Recursive functions, such as `copy_value`, rely on it."""
TOO_DEEP = "nested too deeply"
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


_MERGE_KEY = object()


class CopyBudget:
    """Makes the copies of aliases and merge keys in a text, and bounds their total size."""

    def __init__(self) -> None:
        self.values = self.characters = 0

    def copy(self, value: Any, depth: int) -> Any:
        """Return a deep copy of a value around which `depth` levels are open.

        Raises ValueError for a copy that is too large or nests too deeply.
        """
        self.count(1, value if isinstance(value, str) else "")
        if not isinstance(value, dict | list):
            return value
        if depth == _MAX_DEPTH:
            raise ValueError(TOO_DEEP)
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


class _Open:
    """Stands for an anchored list or mapping whose end has not been read."""


class _Mapping:
    """A mapping, as far as it has been read."""

    def __init__(self) -> None:
        self.value: dict[str, Any] = {}
        self.lines: dict[str | int, LineMap | int] = {}
        """Those of the values that are not merged."""

    def add(self, key: str, value: Any, line: int, lines: LineMap | int) -> None:
        """Add a value whose key is on a line."""
        self.value[key] = value
        self.lines[key] = lines._replace(line=line) if isinstance(lines, LineMap) else line


class DocumentReader:
    """Reads one document. It raises ValueError for an error on its `line`."""

    def __init__(self, events: Iterator[yaml.Event], source: str, copies: CopyBudget) -> None:
        self.line = 0
        """The line of the last event."""
        self._events = events
        self._source = source
        self._copies = copies
        self._anchors: dict[str, Any] = {}
        """The latest value with each anchor."""
        self._value_count = 0

    def read(self, *, by_item: bool) -> Iterator[tuple[Document, ValuePath]]:
        """Yield the document with an empty path.

        With `by_item`, yield the objects in the root's `items` before it, each when it is read, and
        leave them out of the document.
        """
        event = self._next()
        if not by_item or not isinstance(event, yaml.MappingStartEvent):
            value, lines = self._value(event, 0)
            yield Document(value, self._source, lines), ()
            return
        self._open(event, 0)
        line, root = self.line, _Mapping()
        while (key := self._key(root)) is not None:
            key_line, event = self.line, self._next()
            # A list with an anchor is kept, because an alias may refer to it.
            if key == "items" and isinstance(event, yaml.SequenceStartEvent) and not event.anchor:
                rest, lines = yield from self._items(event, root)
                root.add(key, rest, key_line, lines)
            else:
                self._add(root, key, event, 1, key_line)
        yield Document(root.value, self._source, _lines(line, root.lines)), ()

    def _items(
        self, event: Any, root: _Mapping
    ) -> Generator[tuple[Document, ValuePath], None, tuple[Any, LineMap | int]]:
        """Yield the objects of a list in the root. Return the other items and their lines."""
        self._open(event, 1)
        line, index = self.line, 0
        rest: list[Any] = []
        rest_lines: dict[str | int, LineMap | int] = {}
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            value, lines = self._value(event, 2)
            named = isinstance(value, dict) and isinstance(value.get("kind"), str)
            if named or root.value.get("kind") == "List":
                self._value_count = 0
                yield Document(value, self._source, lines), ("items", index)
            else:
                rest_lines[len(rest)] = lines
                rest.append(value)
            index += 1
        return rest, _lines(line, rest_lines)

    def _next(self) -> Any:
        event: Any = next(self._events)
        self.line = event.start_mark.line + 1
        return event

    def _value(self, event: Any, depth: int) -> tuple[Any, LineMap | int]:
        """Return the value that begins with an event, around which `depth` levels are open."""
        if isinstance(event, yaml.ScalarEvent):
            plain = event.implicit[0] and event.tag in (None, "!")
            scalar = resolve_scalar(event.value) if plain else resolve_tagged(event)
            self._count_value()
            if event.anchor is not None:
                self._anchors[event.anchor] = scalar
            return scalar, self.line
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise ValueError(f"not YAML: found undefined alias {event.anchor!r}")
            anchored = self._anchors[event.anchor]
            if isinstance(anchored, _Open):
                raise ValueError("an alias that contains itself")
            return self._copies.copy(anchored, depth), self.line
        opened, line = self._open(event, depth), self.line
        value: Any = []
        lines: dict[str | int, LineMap | int] = {}
        if isinstance(event, yaml.SequenceStartEvent):
            while not isinstance(inner := self._next(), yaml.SequenceEndEvent):
                item, lines[len(value)] = self._value(inner, depth + 1)
                value.append(item)
        else:
            mapping = _Mapping()
            while (key := self._key(mapping)) is not None:
                key_line = self.line
                self._add(mapping, key, self._next(), depth + 1, key_line)
            value, lines = mapping.value, mapping.lines
        if event.anchor is not None and self._anchors[event.anchor] is opened:
            self._anchors[event.anchor] = value
        return value, _lines(line, lines)

    def _open(self, event: Any, depth: int) -> _Open:
        """Check the beginning of a list or mapping around which `depth` levels are open."""
        if depth == _MAX_DEPTH:
            raise ValueError(TOO_DEEP)
        if event.tag not in (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise ValueError(unknown_tag_message(event.tag))
        self._count_value()
        opened = _Open()
        if event.anchor is not None:
            self._anchors[event.anchor] = opened
        return opened

    def _key(self, mapping: _Mapping) -> Any:
        """Return the next key of a mapping, which may be _MERGE_KEY. None: the mapping ends."""
        event = self._next()
        if isinstance(event, yaml.MappingEndEvent):
            return None
        if not isinstance(event, yaml.ScalarEvent):
            in_braces = isinstance(event, yaml.MappingStartEvent) and event.flow_style
            raise ValueError(_TEMPLATE_MESSAGE if in_braces else "a key has to be a plain value")
        plain = event.implicit[0] and event.tag in (None, "!")
        # yq writes the key with its tag.
        if event.value == "<<" and (plain or event.tag == "tag:yaml.org,2002:merge"):
            return _MERGE_KEY
        key = json_key(resolve_scalar(event.value) if plain else event.value)
        if key in mapping.lines:
            raise ValueError(f"duplicate key {key!r}")
        if event.anchor is not None:
            self._anchors[event.anchor] = key
        return key

    def _add(self, mapping: _Mapping, key: Any, event: Any, depth: int, key_line: int) -> None:
        """Add the value that begins with an event.

        Of the values of one merge key, the first one counts. As for kubectl, it replaces the value
        of an earlier key.
        """
        value, lines = self._value(event, depth)
        if key is not _MERGE_KEY:
            mapping.add(key, value, key_line, lines)
            return
        self.line = lines if isinstance(lines, int) else lines.line
        merged: dict[str, Any] = {}
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, dict):
                raise ValueError("`<<` merges mappings only")
            # A merge reads the keys a second time, at each level if merges are nested.
            self._copies.count(len(part))
            for name, inner in part.items():
                merged.setdefault(name, inner)
        mapping.value |= merged

    def _count_value(self) -> None:
        self._value_count += 1
        if self._value_count > _MAX_VALUES:
            raise ValueError(f"more than {_MAX_VALUES} values")


def _lines(line: int, inner: dict[str | int, LineMap | int]) -> LineMap | int:
    return LineMap(line, inner) if inner else line
