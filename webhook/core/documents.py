"""YAML and JSON text as documents that remember their lines.

Scalars read as Kubernetes' own YAML reader reads them, not as YAML 1.1 would have it: a date is a
string and so is `1:30`. A key that stands twice is an error, an alias cannot be used to blow up a
document, and deep nesting is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml

Path: TypeAlias = tuple[str | int, ...]

_MAX_VALUES = 500_000


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


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a text: its value, and where the value came from."""

    value: Any
    source: str
    lines: dict[Path, int]
    """The line of each value, by its path."""

    def line(self, path: Path) -> int:
        """The line of a value, or of the nearest that encloses it where it is absent."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class _Loader(yaml.CSafeLoader):
    """SafeLoader with the scalars of Kubernetes: no dates, no base-60 numbers."""


_TAGS = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _TAGS]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"^[-+]?(0|[1-9][0-9_]*|0[0-7_]+|0x[0-9a-fA-F_]+|0b[01_]+)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9]+|[0-9][0-9_]*)([eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


def load_documents(text: str | bytes, source: str) -> list[Document]:
    """Every document in the text that is not empty; `source` names it in errors.

    Raises DocumentError.
    """
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:
        raise _error(error, source) from None
    try:
        return [document for document in _documents(loader, source) if document.value is not None]
    except yaml.YAMLError as error:
        raise _error(error, source) from None
    except (RecursionError, UnboundLocalError):
        # PyYAML's C composer turns the one into the other on its way out.
        raise DocumentError(source, 0, "nested too deeply") from None
    finally:
        loader.dispose()


def _documents(loader: _Loader, source: str) -> Iterator[Document]:
    while loader.check_node():
        builder = _Builder(loader, source)
        value = builder.build(loader.get_node(), ())  # type: ignore[arg-type]  # check_node said so
        yield Document(value, source, builder.lines)


class _Builder:
    """Turns the node tree of one document into plain values and remembers the lines."""

    def __init__(self, loader: _Loader, source: str) -> None:
        self.lines: dict[Path, int] = {}
        self._loader = loader
        self._source = source
        self._open: set[int] = set()

    def build(self, node: yaml.Node, path: Path) -> Any:
        self.lines[path] = node.start_mark.line + 1
        if len(self.lines) > _MAX_VALUES:
            raise self._error(node, f"more than {_MAX_VALUES} values (are aliases multiplying?)")
        if isinstance(node, yaml.ScalarNode):
            return self._loader.construct_object(node)
        if id(node) in self._open:
            raise self._error(node, "an alias that contains itself")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
            return self._mapping(node, path)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.Node, path: Path) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                value = self.build(value_node, path)
                for part in value if isinstance(value, list) else [value]:
                    if not isinstance(part, dict):
                        raise self._error(value_node, "`<<` merges mappings only")
                    merged = part | merged
                continue
            key = self._key(key_node)
            if key in mapping:
                raise self._error(key_node, f"key {key!r} stands twice")
            mapping[key] = self.build(value_node, (*path, key))
            self.lines[(*path, key)] = key_node.start_mark.line + 1
        return merged | mapping

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(node, "a key has to be a plain value")
        # `on: 1` and `8080: x` have string keys in JSON, with the text that was written.
        return str(node.value)

    def _error(self, node: yaml.Node, message: str) -> DocumentError:
        return DocumentError(self._source, node.start_mark.line + 1, message)


def _error(error: yaml.YAMLError, source: str) -> DocumentError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    context = getattr(error, "context", None)
    message = f"not YAML: {problem}" + (f" ({context})" if context else "")
    return DocumentError(source, mark.line + 1 if mark else 0, message)
