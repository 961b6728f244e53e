"""Applies the operations `add`, `replace` and `move` of a JSON Patch (RFC 6902) in place.

The patch builder makes only these operations. `jsonpatch` applies all of RFC 6902, but takes about
15 times as long, which is too long to check every decision. Property tests hold both equal: they
give the same results, and refuse the same patches.

There is one intended difference. This module refuses a path to the whole document, because it
changes the document in place. No edit to a pod has such a path, and the API server refuses to add
or move to it too. In its other refusals this module is at least as strict as the API server
(gopkg.in/evanphx/json-patch.v4, `patch.go`), so that a patch which applies here applies there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

_is_index = re.compile("0|[1-9][0-9]{0,9}").fullmatch
"""An index has no sign and no leading zero. A list has fewer items than 10 digits can count."""
_has_invalid_escape = re.compile("~(?![01])").search
_MAX_POINTERS = 1_024
"""The maximum number of parsed pointers that are kept. A cluster has some dozens: each consists of
field names, small indices and podsettle's own annotations."""


class ApplyError(Exception):
    """An operation that does not apply to the document."""


def apply_operations(document: Any, operations: Sequence[dict[str, Any]]) -> None:
    """Apply the operations in order. **Mutates `document`**, even if a later operation fails.

    The document and the values of the operations consist of dicts, lists and scalars, as from a
    JSON decoder. The document receives copies of the values, so the operations stay unchanged.

    Raises ApplyError if an operation does not apply.
    """
    for operation in operations:
        try:
            _apply(document, operation)
        except ApplyError as error:
            cause = str(error)
        except KeyError as error:
            cause = f"there is no member {error}"
        except (IndexError, TypeError):
            cause = "there is no such item of an array, or the parent is a scalar or null"
        else:
            continue
        raise ApplyError(f"{operation.get('op')} {operation.get('path')}: {cause}")


def _apply(document: Any, operation: dict[str, Any]) -> None:
    """Apply one operation. If it does not apply, raise KeyError, IndexError, TypeError or
    ApplyError."""
    name, path = operation["op"], operation["path"]
    if name == "add" or name == "replace":
        value = operation["value"]
        if type(value) is not str:
            # A copy, because a later operation may change a list that an earlier one has added.
            value = msgspec.to_builtins(value, builtin_types=(msgspec.Raw,))
    elif name == "move":
        source = operation["from"]
        if path.startswith(f"{source}/"):
            raise ApplyError("the target is a part of the moved value")
        # If both paths are equal, the value is put back.
        value = _take(document, source)
    else:
        raise ApplyError("only add, replace and move are supported")
    parent, key, index = _find_parent(document, path)
    if type(parent) is dict:
        if name == "replace" and key not in parent:
            raise KeyError(key)
        parent[key] = value
    elif type(parent) is not list:
        raise ApplyError("the parent is neither an object nor an array")
    elif name == "replace":
        parent[index] = value
    elif key == "-":
        parent.append(value)
    elif index > len(parent):
        raise ApplyError("the index is beyond the end of the array")
    else:
        parent.insert(index, value)


def _take(document: Any, path: str) -> Any:
    """Remove the value at a path from the document, and return it. Raises as `_apply` does."""
    parent, key, index = _find_parent(document, path)
    if type(parent) is dict:
        return parent.pop(key)
    if type(parent) is list:
        return parent.pop(index)
    raise ApplyError("the parent is neither an object nor an array")


def _find_parent(document: Any, path: str) -> tuple[Any, str, Any]:
    """Return the object or array that a path is in, with the path's last key, also as an index."""
    parents, key, index = _parse_pointer(path)
    for parent_key, parent_index in parents:
        document = document[parent_key if type(document) is dict else parent_index]
    return document, key, index


class _Pointer(NamedTuple):
    """A parsed JSON Pointer (RFC 6901). Each segment is a key, and an index if it can be one."""

    parents: tuple[tuple[str, int | None], ...]
    key: str
    index: Any


@lru_cache(_MAX_POINTERS)
def _parse_pointer(path: str) -> _Pointer:
    """Return a parsed pointer. Raises ApplyError if it is malformed or names the whole document."""
    root, *segments = path.split("/")
    if root or not segments or _has_invalid_escape(path):
        raise ApplyError(f"{path!r} is not the path of a part of the document")
    keys = [segment.replace("~1", "/").replace("~0", "~") for segment in segments]
    *parents, last = [(key, int(key) if _is_index(key) else None) for key in keys]
    return _Pointer(tuple(parents), *last)
