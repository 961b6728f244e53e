"""YAML and JSON text as documents that remember their lines.

Scalars and keys read as a Kubernetes client reads them (`goyaml.v2/resolve.go` and `yaml.go` in
kubernetes-sigs/yaml), not as YAML 1.1 would have it: a date is a string and so is `1:30`. A key
that stands twice is an error, aliases cannot be used to blow up a document, and nesting is bounded.

The parser's events are put together here, without recursion: PyYAML's own composer overflows the
stack in C on deep nesting, which takes the process with it. Time and memory are in proportion to
the text, whatever its nesting: an anchor's size is counted while it is read, and what aliases and
merge keys copy is bounded for the whole text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import msgspec
import yaml

ValuePath: TypeAlias = tuple[str | int, ...]

_MAX_DEPTH = 200
_MAX_VALUES = 500_000
"""Of one document."""
_MAX_COPIED_VALUES = 10_000
_MAX_COPIED_CHARACTERS = 256 * 1024
"""Of all aliases and merge keys of a text: they are no part of its length, which callers bound."""
_MAX_DIRECTIVES = 16
"""Lines that begin with `%`. libyaml compares each `%TAG` with all before it."""


class DocumentError(Exception):
    """Text that is not YAML or JSON, or a document that cannot be taken.

    `line` counts from 1; 0 where there is none to point to.
    """

    def __init__(self, source: str, line: int, message: str) -> None:
        where = f"{source}:{line}" if line else source
        super().__init__(f"{where}: {message}")
        self.source = source
        self.line = line
        self.message = message


class _Lines(NamedTuple):
    """The line of a list or mapping, and of each value in it."""

    line: int
    inner: dict[str | int, _Lines | int]


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a text: its value, and where the value came from."""

    value: Any
    source: str
    lines: _Lines | int

    def line(self, path: ValuePath) -> int:
        """The line of a value, or of the nearest that encloses it where it is absent."""
        at = self.lines
        for step in path:
            found = None if isinstance(at, int) else at.inner.get(step)
            if found is None:
                break
            at = found
        return at if isinstance(at, int) else at.line


def load_documents(text: str | bytes, source: str) -> list[Document]:
    """Every document in the text that is not empty; `source` names it in errors.

    Raises DocumentError.
    """
    return list(each_document(text, source))


def each_document(text: str | bytes, source: str) -> Iterator[Document]:
    """The same one by one, as each is read: thousands at once are many times what is kept of them.

    Raises DocumentError, perhaps after some documents.
    """
    try:
        decoded = _decode(text)
        if len(list(islice(_DIRECTIVE.finditer(decoded), _MAX_DIRECTIVES + 1))) > _MAX_DIRECTIVES:
            raise DocumentError(source, 0, f"more than {_MAX_DIRECTIVES} lines begin with '%'")
        events = yaml.parse(decoded, Loader=yaml.CSafeLoader)
        yield from (found for found in _build_documents(events, source) if found.value is not None)
    except UnicodeDecodeError as error:
        raise DocumentError(source, 0, f"not YAML: not UTF-8 text ({error.reason})") from None
    except yaml.YAMLError as error:
        raise _parse_error(error, source) from None


_TEMPLATE_MESSAGE = (
    "a key has to be a plain value; what holds '{{' is a template and no YAML: give what is made "
    "of it, for a Helm chart the output of helm template"
)
_DIRECTIVE = re.compile("(?:^|[\\n\\r\\x85\\u2028\\u2029])%")
_SURROGATES = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")


def _decode(text: str | bytes) -> str:
    decoded = text.decode() if isinstance(text, bytes) else text
    # Only JSON: a YAML string without double quotes has no escapes.
    if decoded.lstrip()[:1] in ("{", "[", '"') and _SURROGATES.search(decoded):
        # JSON writes characters beyond 16 bits in two halves, which libyaml takes for nonsense.
        decoded = _SURROGATES.sub(lambda pair: str(msgspec.json.decode(f'"{pair[0]}"')), decoded)
    return decoded


class _Size(NamedTuple):
    """How much a value holds, itself included."""

    values: int
    characters: int
    """Of its texts and keys."""
    depth: int
    """How deeply it is nested; 0 for a scalar."""


@dataclass(slots=True)
class _OpenCollection:
    """A list or mapping that is still being read."""

    value: list[Any] | dict[str, Any]
    line: int
    anchor: str | None
    lines: dict[str | int, _Lines | int] = field(default_factory=dict)
    key: str | None = None
    key_line: int = 0
    merging: bool = False
    """Whether the value that comes next is to be merged."""
    merged_before: bool = False
    merged: dict[str, Any] = field(default_factory=dict)
    values: int = 1
    characters: int = 0
    depth: int = 1

    def add(self, value: Any, size: _Size | None) -> None:
        """Count a value that it holds; a scalar has no size."""
        if size is None:
            self.values += 1
            if isinstance(value, str):
                self.characters += len(value)
            return
        self.values += size.values
        self.characters += size.characters
        self.depth = max(self.depth, size.depth + 1)


@dataclass(slots=True)
class _Copies:
    """What aliases and merge keys of a text have copied."""

    values: int = 0
    characters: int = 0

    def add(self, size: _Size) -> bool:
        """Count a copy before it is made; False where it would be too much."""
        self.values += size.values
        self.characters += size.characters
        return self.values <= _MAX_COPIED_VALUES and self.characters <= _MAX_COPIED_CHARACTERS


def _build_documents(events: Iterable[yaml.Event], source: str) -> Iterator[Document]:
    copies = _Copies()
    builder = _Builder(source, copies)
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            builder = _Builder(source, copies)
        elif isinstance(event, yaml.DocumentEndEvent):
            yield Document(builder.root, source, builder.lines)
        elif isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
            builder.feed(event)


class _Builder:
    """Puts the events of one document together."""

    def __init__(self, source: str, copies: _Copies) -> None:
        self.root: Any = None
        self.lines: _Lines | int = 1
        self._source = source
        self._copies = copies
        self._stack: list[_OpenCollection] = []
        self._anchors: dict[str, tuple[Any, _Size] | _OpenCollection] = {}
        """By name the latest value that began with it, perhaps one that is still open."""
        self._value_count = 0

    def feed(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.CollectionEndEvent):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._append(*self._copy_alias(event, line), line)
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event, line)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open(event, line)

    def _open(self, event: yaml.CollectionStartEvent, line: int) -> None:
        if self._expects_key():
            in_braces = isinstance(event, yaml.MappingStartEvent) and event.flow_style
            raise self._make_error(
                line, _TEMPLATE_MESSAGE if in_braces else "a key has to be a plain value"
            )
        if len(self._stack) == _MAX_DEPTH:
            raise self._make_error(line, "nested too deeply")
        if event.tag not in (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise self._make_error(line, _unknown_tag_message(event.tag))
        value: list[Any] | dict[str, Any] = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        self._count_value(line)
        opened = _OpenCollection(value, line, event.anchor)
        if opened.anchor is not None:
            self._anchors[opened.anchor] = opened
        self._stack.append(opened)

    def _close(self) -> None:
        closed = self._stack.pop()
        value = closed.value
        if isinstance(value, dict) and closed.merged:
            for key, inner in closed.merged.items():
                if key not in value:
                    closed.characters += len(key)
                    closed.add(inner, _measure(inner))
            value = closed.merged | value
        size = _Size(closed.values, closed.characters, closed.depth)
        if closed.anchor is not None and self._anchors[closed.anchor] is closed:
            self._anchors[closed.anchor] = value, size
        self._append(value, size, closed.line, closed.lines)

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        plain = event.implicit[0] and event.tag in (None, "!")
        if self._expects_key():
            top = self._stack[-1]
            if plain and event.value == "<<":
                if top.merged_before:
                    raise self._make_error(line, "key '<<' stands twice")
                top.merging = top.merged_before = True
                top.key, top.key_line = "<<", line
                return
            key = _json_key(self._resolve_plain(event.value, line) if plain else event.value)
            if key in top.value:
                raise self._make_error(line, f"key {key!r} stands twice")
            top.key, top.key_line = key, line
            top.characters += len(key)
            self._set_anchor(event.anchor, key)
            return
        value = self._resolve_plain(event.value, line) if plain else self._tagged(event, line)
        self._count_value(line)
        self._set_anchor(event.anchor, value)
        self._append(value, None, line)

    def _resolve_plain(self, text: str, line: int) -> Any:
        try:
            return resolve_scalar(text)
        except ValueError as error:
            raise self._make_error(line, str(error)) from None

    def _tagged(self, event: yaml.ScalarEvent, line: int) -> Any:
        try:
            return _tagged(event)
        except ValueError as error:
            raise self._make_error(line, str(error)) from None

    def _copy_alias(self, event: yaml.AliasEvent, line: int) -> tuple[Any, _Size]:
        if self._expects_key():
            raise self._make_error(line, "a key has to be a plain value")
        found = self._anchors.get(event.anchor or "")
        if found is None:
            raise self._make_error(line, f"not YAML: found undefined alias {event.anchor!r}")
        if isinstance(found, _OpenCollection):
            raise self._make_error(line, "an alias that contains itself")
        value, size = found
        self._count_copy(size, line)
        if len(self._stack) + size.depth > _MAX_DEPTH:
            raise self._make_error(line, "nested too deeply")
        return copy_value(value), size

    def _append(
        self,
        value: Any,
        size: _Size | None,
        line: int,
        lines: dict[str | int, _Lines | int] | None = None,
    ) -> None:
        """Add a finished value to what is open, or make it the document; a scalar has no size."""
        if not self._stack:
            self.root, self.lines = value, _Lines(line, lines) if lines else line
            return
        top = self._stack[-1]
        if isinstance(top.value, list):
            top.lines[len(top.value)] = _Lines(line, lines) if lines else line
            top.value.append(value)
            top.add(value, size)
        elif top.merging:
            # What is merged is looked at once more.
            self._count_copy(size or _measure(value), line)
            self._merge(top, value, line)
            for key, inner in (lines or {}).items():
                top.lines.setdefault(key, inner)
        else:
            key = top.key or ""
            top.lines[key] = _Lines(top.key_line, lines) if lines else top.key_line
            top.value[key] = value
            top.add(value, size)
        top.key, top.merging = None, False

    def _merge(self, top: _OpenCollection, value: Any, line: int) -> None:
        """Take over keys that are not there; the first mapping that has one counts."""
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, dict):
                raise self._make_error(line, "`<<` merges mappings only")
            for key, inner in part.items():
                top.merged.setdefault(key, inner)

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
                f"aliases stand for more than {_MAX_COPIED_VALUES} values or "
                f"{_MAX_COPIED_CHARACTERS} characters (are aliases multiplying?)"
            )
            raise self._make_error(line, message)

    def _make_error(self, line: int, message: str) -> DocumentError:
        return DocumentError(self._source, line, message)


def _measure(value: Any) -> _Size:
    """Of a finished value, by looking at all of it."""
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


def copy_value(value: Any) -> Any:
    """A copy of a document's value, in a fraction of the time that `copy.deepcopy` takes."""
    if isinstance(value, dict):
        return {key: copy_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [copy_value(inner) for inner in value]
    return value


_KEYWORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **{
        word: value
        for value, lower in (
            (True, ("y", "yes", "true", "on")),
            (False, ("n", "no", "false", "off")),
        )
        for short in lower
        for word in (short, short.capitalize(), short.upper())
    },
}
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_MAX_NUMBER_CHARACTERS = 400
_MAX_PLAIN_FLOAT = 1e21
"""Where Go's strconv.FormatFloat begins to write exponents."""


def resolve_scalar(text: str) -> Any:
    """A plain scalar as a Kubernetes client reads it. Raises ValueError for a monstrous number."""
    if text in _KEYWORDS:
        return _KEYWORDS[text]
    if text[0] not in "-+.0123456789":
        return text
    digits = text.replace("_", "")
    if _INTEGER.fullmatch(digits):
        _check_number_length(digits)
        sign = -1 if digits[0] == "-" else 1
        return sign * _parse_integer(digits.lstrip("+-"))
    if _FLOAT.fullmatch(digits):
        _check_number_length(digits)
        number = float(digits)
        return number if math.isfinite(number) else text
    return text


def _parse_integer(digits: str) -> int:
    lower = digits.lower()
    if lower.startswith(("0x", "0b", "0o")):
        return int(lower, 0)
    return int(lower, 8) if len(lower) > 1 and lower[0] == "0" else int(lower)


def _check_number_length(digits: str) -> None:
    if len(digits) > _MAX_NUMBER_CHARACTERS:
        raise ValueError(f"a number of {len(digits)} characters")


def _tagged(event: yaml.ScalarEvent) -> Any:
    """A scalar that is quoted or says its type. Raises ValueError."""
    tag, text = (event.tag or "!").removeprefix("tag:yaml.org,2002:"), event.value
    if tag in ("!", "str"):
        return text
    resolved = resolve_scalar(text)
    wanted: dict[str, tuple[type, ...]] = {
        "bool": (bool,),
        "int": (int,),
        "float": (int, float),
        "null": (type(None),),
    }
    if tag not in wanted:
        raise ValueError(_unknown_tag_message(event.tag))
    is_bool = isinstance(resolved, bool)
    if not isinstance(resolved, wanted[tag]) or is_bool is not (tag == "bool"):
        raise ValueError(f"{text!r} is no {tag}")
    return float(resolved) if isinstance(resolved, int) and tag == "float" else resolved


def _unknown_tag_message(tag: str | None) -> str:
    return f"not YAML: could not determine a constructor for the tag {tag!r}"


def _json_key(value: Any) -> str:
    """A key as JSON writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_PLAIN_FLOAT:
        return str(int(value))
    return "null" if value is None else str(value)


def _parse_error(error: yaml.YAMLError, source: str) -> DocumentError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    context = getattr(error, "context", None)
    message = f"not YAML: {problem}" + (f" ({context})" if context else "")
    return DocumentError(source, mark.line + 1 if mark else 0, message)
