"""Scalars and keys of YAML with the meaning that they have to a Kubernetes client.

The rules are those of `goyaml.v2/resolve.go` and `yaml.go` in kubernetes-sigs/yaml. They differ
from YAML 1.1, in which a date and `1:30` are not strings.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

_KEYWORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **{
        spelling: value
        for value, words in (
            (True, ("y", "yes", "true", "on")),
            (False, ("n", "no", "false", "off")),
        )
        for word in words
        for spelling in (word, word.capitalize(), word.upper())
    },
}
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_MAX_NUMBER_CHARACTERS = 400
"""The maximum length of a number. The largest finite float has 309 digits."""
_MAX_PLAIN_FLOAT = 1e21
"""The number from which Go's encoding/json writes exponents."""


def resolve_scalar(text: str) -> Any:
    """Return the value of a plain scalar. Raise ValueError for a number that is too long."""
    if text in _KEYWORDS:
        return _KEYWORDS[text]
    if text[0] not in "-+.0123456789":
        return text
    digits = text.replace("_", "")
    is_integer = _INTEGER.fullmatch(digits) is not None
    if not is_integer and not _FLOAT.fullmatch(digits):
        return text
    if len(digits) > _MAX_NUMBER_CHARACTERS:
        raise ValueError(f"a number of {len(digits)} characters is too long")
    if is_integer:
        sign = -1 if digits[0] == "-" else 1
        return sign * _parse_integer(digits.lstrip("+-"))
    number = float(digits)
    if not math.isfinite(number):
        return text
    # A client sends JSON, in which Go writes 1e3 as 1000.
    return int(number) if number.is_integer() and abs(number) < _MAX_PLAIN_FLOAT else number


def _parse_integer(digits: str) -> int:
    lower = digits.lower()
    if lower.startswith(("0x", "0b", "0o")):
        return int(lower, 0)
    return int(lower, 8) if len(lower) > 1 and lower[0] == "0" else int(lower)


def resolve_tagged(event: yaml.ScalarEvent) -> Any:
    """Return the value of a scalar that is quoted or has a tag.

    Raises ValueError for an unknown tag, and for a text that is no value of the tag's type.
    """
    tag, text = (event.tag or "!").removeprefix("tag:yaml.org,2002:"), event.value
    if tag in ("!", "str"):
        return text
    resolved = resolve_scalar(text)
    types_by_tag: dict[str, tuple[type, ...]] = {
        "bool": (bool,),
        "int": (int,),
        "float": (int, float),
        "null": (type(None),),
    }
    if tag not in types_by_tag:
        raise ValueError(unknown_tag_message(event.tag))
    is_bool = isinstance(resolved, bool)
    # kubectl takes 1e3 without a tag alone.
    is_float = tag == "int" and not _INTEGER.fullmatch(text.replace("_", ""))
    if is_float or not isinstance(resolved, types_by_tag[tag]) or is_bool is not (tag == "bool"):
        raise ValueError(f"{text!r} is not a valid {tag}")
    return resolved


def unknown_tag_message(tag: str | None) -> str:
    """Return the error for a tag that no Kubernetes client knows."""
    return f"not YAML: could not determine a constructor for the tag {tag!r}"


def json_key(value: Any) -> str:
    """Return a key in the form that JSON gives it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
