"""Kubernetes label selectors (`metav1.LabelSelector`), compiled once to predicates over labels.

A selector without requirements matches everything. The operators are those of
`webhook.core.labels`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from webhook.core.constants import DNS_SUBDOMAIN
from webhook.core.labels import (
    LABEL_KEY,
    LabelKey,
    Labels,
    LabelValue,
    Matcher,
    compile_requirement,
)
from webhook.core.printable import list_first
from webhook.core.types import StrictModel

_PREFIX = re.compile(DNS_SUBDOMAIN, re.ASCII)
_MAX_PREFIX_CHARACTERS = 253


class LabelRequirement(NamedTuple):
    """A requirement on labels, as in `matchExpressions`."""

    key: str
    operator: str
    values: tuple[str, ...]


class Requirement(StrictModel):
    """One entry of `matchExpressions`."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"operator": {"enum": ["In", "NotIn"]}}},
            "then": {"required": ["values"], "properties": {"values": {"minItems": 1}}},
            "else": {"properties": {"values": {"maxItems": 0}}},
            "x-kubernetes-validations": [
                {
                    "rule": "!(self.operator in ['In', 'NotIn'])"
                    " || (has(self.values) && size(self.values) > 0)",
                    "message": "operators In and NotIn need values",
                    "messageExpression": "'operator ' + self.operator + ' needs values'",
                },
                {
                    "rule": "!(self.operator in ['Exists', 'DoesNotExist'])"
                    " || !has(self.values) || size(self.values) == 0",
                    "message": "operators Exists and DoesNotExist take no values",
                    "messageExpression": "'operator ' + self.operator + ' takes no values'",
                },
            ],
        }
    )

    key: LabelKey = Field(description="The label's key.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="How the label's value relates to `values`."
    )
    values: tuple[LabelValue, ...] = Field(
        default=(),
        strict=False,
        description="The values for In and NotIn. Empty for Exists and DoesNotExist.",
    )

    @model_validator(mode="after")
    def _values_fit_operator(self) -> Requirement:
        if self.operator in ("In", "NotIn") and not self.values:
            raise PydanticCustomError("values", "operator {op} needs values", {"op": self.operator})
        if self.operator in ("Exists", "DoesNotExist") and self.values:
            raise PydanticCustomError(
                "values", "operator {op} takes no values", {"op": self.operator}
            )
        return self


def _add_label_rules(schema: dict[str, Any]) -> None:
    # An API server refuses a CRD whose CEL rules could cost too much. The limit bounds their cost.
    schema["maxProperties"] = 1000
    LABEL_KEY.add_key_rules(schema)


class LabelSelector(StrictModel):
    """A Kubernetes label selector: every part has to hold. `{}` selects everything."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    match_labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict,
        description="Labels that have to exist with exactly these values.",
        json_schema_extra=_add_label_rules,
    )
    match_expressions: tuple[Requirement, ...] = Field(
        default=(), strict=False, description="Requirements. All of them have to hold."
    )

    def __hash__(self) -> int:
        """Let pydantic share the default instead of copying it into every policy."""
        return hash((frozenset(self.match_labels.items()), self.match_expressions))

    # These are computed once, because those of all policies are read whenever one changes.
    @cached_property
    def requirements(self) -> tuple[LabelRequirement, ...]:
        """All requirements. Those of `matchLabels` have the operator In."""
        return (
            *(LabelRequirement(key, "In", (value,)) for key, value in self.match_labels.items()),
            *(LabelRequirement(e.key, e.operator, e.values) for e in self.match_expressions),
        )

    @cached_property
    def webhook_requirements(self) -> frozenset[LabelRequirement]:
        """The requirements that a webhook can have. Two that mean the same are equal."""
        return frozenset(
            each._replace(values=tuple(sorted(set(each.values))))
            for each in self.requirements
            if _is_label_key(each.key)
        )

    def listed_values(self, key: str) -> frozenset[str]:
        """Return the values of a label that `matchLabels` or the operator `In` list."""
        listed = (each.values for each in self.requirements if each[:2] == (key, "In"))
        return frozenset().union(*listed)


def _is_label_key(key: str) -> bool:
    """Return whether the API server accepts a text as the key of a label.

    A policy's schema allows a few keys that the API server refuses, such as `a..b/c`. One of them
    would make it refuse the whole configuration. Without the requirement the webhook gets more
    pods.
    """
    prefix, slash, _name = key.rpartition("/")
    return not slash or (
        len(prefix) <= _MAX_PREFIX_CHARACTERS and _PREFIX.fullmatch(prefix) is not None
    )


def compile_selector(selector: LabelSelector) -> Matcher:
    """Return a predicate over labels that is true if the selector matches them."""
    tests = [compile_requirement(r.operator, r.key, r.values) for r in selector.requirements]
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


class DecisiveLabels:
    """The labels that selectors read, with the values that they distinguish."""

    def __init__(self, selectors: Iterable[LabelSelector | None]) -> None:
        self._values: dict[str, set[str]] = {}
        for selector in filter(None, selectors):
            for requirement in selector.requirements:
                self._values.setdefault(requirement.key, set()).update(requirement.values)

    def of(self, labels: Labels) -> list[str | None]:
        """Return what the selectors read of these labels, as keys and values in turn.

        A value that no selector lists is None. If the result is the same for two objects, each
        selector matches both or neither. So it can be a cache key, and clients cannot make it long.
        """
        found: list[str | None] = []
        for key in self._values.keys() & labels.keys():
            value = labels[key]
            found += key, value if value in self._values[key] else None
        return found


_MAX_QUOTED_CHARACTERS = 63
"""The longest valid value of a label. Clients may send longer ones, which messages cut."""
_MAX_QUOTED_VALUES = 5
"""The maximum number of a requirement's values in a message, because people read it."""


def unmet_requirements(selector: LabelSelector, labels: Labels) -> Iterator[str]:
    """Yield each requirement that labels do not meet, such as `has no label team=build`."""
    for key, operator, values in selector.requirements:
        if not compile_requirement(operator, key, values)(labels):
            yield _unmet(key, values if operator == "In" else (), labels)


def first_unmet(selector: LabelSelector, labels: Labels) -> str:
    """Return the first requirement that labels do not meet, as a clause without its subject.

    The result is empty if the selector matches.
    """
    return next(unmet_requirements(selector, labels), "")


def _unmet(key: str, wanted: tuple[str, ...], labels: Labels) -> str:
    """Return how the label with a key differs from what a requirement wants.

    `wanted` holds the possible values. It is empty if the presence of the label, or its value,
    decides.
    """
    present = labels.get(key)
    if present is not None:
        label = f"{key}={present[:_MAX_QUOTED_CHARACTERS]}"
        return f"has the label {label}" + (f", not {_one_of(wanted)}" if wanted else "")
    return f"has no label {key}" + (f"={_one_of(wanted)}" if wanted else "")


def _one_of(values: tuple[str, ...]) -> str:
    return list_first(values, _MAX_QUOTED_VALUES, " or ", " or ")
