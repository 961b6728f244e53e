"""CEL expressions as text, for policies that the API server evaluates itself."""

from __future__ import annotations

import json
from collections.abc import Iterable

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NODE_TERMS = f"object.spec.?affinity.?nodeAffinity.?{_REQUIRED}.?nodeSelectorTerms.orValue([])"
"""The terms of a pod's required node affinity."""
CONTAINERS = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
"""A pod's containers of both kinds."""


def quote(text: str) -> str:
    """Return a text as a CEL string. The escapes of JSON are also those of CEL."""
    return json.dumps(text, ensure_ascii=False)


def quoted_list(texts: Iterable[str]) -> str:
    """Return texts as a CEL list of strings."""
    return f"[{', '.join(map(quote, texts))}]"


def all_of(*parts: str) -> str:
    """Return the conjunction of expressions, each of which binds more tightly than `||`."""
    return "\n&& ".join(parts)


def any_of(*parts: str) -> str:
    """Return the disjunction of expressions in parentheses. A single one is returned itself."""
    return f"({' || '.join(parts)})" if len(parts) > 1 else parts[0]


def indent(expression: str) -> str:
    """Return an expression of several lines, all but the first of which are indented."""
    return expression.replace("\n", "\n  ")
