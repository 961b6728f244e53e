"""Kubernetes labels: keys, values, and the operators that compare them.

Semantics: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/ and
`metav1.LabelSelector`. A missing key satisfies NotIn and DoesNotExist, as it does there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, WithJsonSchema

from webhook.core.constants import OBJECT_NAME
from webhook.core.types import TextPattern

Labels: TypeAlias = Mapping[str, str]

Matcher: TypeAlias = Callable[[Labels], bool]
"""A compiled selector or requirement. It returns whether the labels of an object match."""

_NAME_PATTERN = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_KEY_PATTERN = f"^({OBJECT_NAME.pattern}/)?{_NAME_PATTERN}$"
LABEL_VALUE_PATTERN = f"^({_NAME_PATTERN})?$"
LABEL_KEY = TextPattern(LABEL_KEY_PATTERN, "is not a label key")
_VALUE = TextPattern(LABEL_VALUE_PATTERN, "is not a label value")
_INT64 = re.compile("[-+]?[0-9]{1,18}")

LabelKey = Annotated[str, LABEL_KEY]
LabelValue = Annotated[str, _VALUE]


def _check_label_pair(pair: str) -> str:
    parse_labels((pair,))
    return pair


LABEL_PAIR_PATTERN = f"{LABEL_KEY_PATTERN[:-1]}={LABEL_VALUE_PATTERN[1:]}"
LabelPair = Annotated[
    str,
    AfterValidator(_check_label_pair),
    WithJsonSchema({"type": "string", "pattern": LABEL_PAIR_PATTERN}),
]
"""A label and its value in a text such as `team=build`."""


def parse_labels(pairs: Iterable[str]) -> dict[str, str]:
    """Return the labels in texts such as `team=build`. Raise ValueError for any other text."""
    labels = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise ValueError(f"label {pair!r} is not of the form key=value")
        labels[LABEL_KEY.check(key)] = _VALUE.check(value)
    return labels


def compile_requirement(operator: str, key: str, values: tuple[str, ...]) -> Matcher:
    """Return a predicate for one requirement of a label selector or of a node affinity.

    The predicate returns whether the labels of an object meet the requirement.

    Raises ValueError for an unknown operator, and IndexError for Gt or Lt without a value.
    """
    value_set = frozenset(values)
    match operator:
        case "In":
            return lambda labels: labels.get(key) in value_set
        case "NotIn":
            return lambda labels: labels.get(key) not in value_set
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
        case "Gt" | "Lt":
            return _compare_numbers(operator, key, values)
    raise ValueError(f"unknown selector operator {operator!r}")


def _compare_numbers(operator: str, key: str, values: tuple[str, ...]) -> Matcher:
    """Return a predicate for `Gt` or `Lt`, which compare the label's value with a whole number."""
    bound = _parse_int64(values[0])
    if bound is None:
        raise ValueError(f"{operator} compares with a whole number, not with {values[0]!r}")

    @cache  # Thousands of nodes have few values.
    def compare(text: str) -> bool:
        number = _parse_int64(text)
        if number is None:
            return False
        return number > bound if operator == "Gt" else number < bound

    return lambda labels: compare(labels.get(key, ""))


def _parse_int64(text: str) -> int | None:
    """Return the whole number that a label value spells, or None if the value is no whole number.

    The syntax is that of Go's strconv.ParseInt. Numbers of more than 18 digits give None, because
    they may not fit into 64 bits.
    """
    return int(text) if _INT64.fullmatch(text) else None
