"""YAML with the meaning that it has for client-go."""

from __future__ import annotations

import re
from typing import Any

import yaml

from webhook.core.preview.yaml_scalars import json_key, resolve_scalar

_SCALAR = "!scalar"


# The C parser, because a kubeconfig of an organization can have hundreds of clusters.
class _Loader(yaml.CSafeLoader):
    """A loader for which `2026-11-28` and `12:30` are texts, and `y` is not."""

    yaml_implicit_resolvers = {"<": [("tag:yaml.org,2002:merge", re.compile("<<$"))]}  # noqa: RUF012


_Loader.add_implicit_resolver(_SCALAR, re.compile(""), None)
_Loader.add_constructor(_SCALAR, lambda _, node: resolve_scalar(node.value))


def load_yaml(text: bytes) -> Any:
    """Return the first document of a text, with texts as keys, and without those of null values.

    For Go, such keys are not set. An empty text is None. Raises ValueError.
    """
    try:
        return without_nulls(next(yaml.load_all(text, _Loader), None))
    except (yaml.YAMLError, RecursionError) as error:
        # The parser's message has several lines.
        raise ValueError(f"not YAML: {' '.join(str(error).split())}") from None


def without_nulls(value: Any) -> Any:
    """Return a value without the keys of null values in it, and with texts as keys."""
    if isinstance(value, dict):
        return {json_key(k): without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value
