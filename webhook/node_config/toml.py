"""Tables of TOML, for the files of container runtimes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def toml_table(name: str, settings: Mapping[str, Any]) -> str:
    """Return a table with its sub-tables.

    The values are texts, whole numbers, truth values, lists of these, and mappings of texts to
    them. Their forms in JSON are valid TOML too.
    """
    tables = [(name, {key: each for key, each in settings.items() if not isinstance(each, dict)})]
    for key, each in settings.items():
        if isinstance(each, dict) and each:
            tables.append((f"{name}.{key}", each))
    return "\n".join(_lines(title, pairs) for title, pairs in tables)


def _lines(title: str, pairs: Mapping[str, Any]) -> str:
    lines = [f"[{title}]", *(f"{_key(key)} = {_value(value)}" for key, value in pairs.items())]
    return "\n".join(lines) + "\n"


def _key(text: str) -> str:
    return text if text.replace("_", "").isalnum() and text.isascii() else _value(text)


def _value(value: object) -> str:
    # DEL is the only control character that JSON leaves as it is and TOML refuses.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
