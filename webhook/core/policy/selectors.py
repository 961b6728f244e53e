"""Kubernetes label selectors, compiled once to closures.

Semantics: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/ and
`metav1.LabelSelector`; a missing key satisfies NotIn and DoesNotExist, as it does there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from webhook.core.types import StrictModel

Labels: TypeAlias = Mapping[str, str]
Matcher: TypeAlias = Callable[[Labels], bool]

_NAME = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
KEY_PATTERN = f"^([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}$"
VALUE_PATTERN = f"^({_NAME})?$"
_KEY = re.compile(KEY_PATTERN, re.ASCII)
_VALUE = re.compile(VALUE_PATTERN, re.ASCII)


def _check_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is not a label key")
    return key


def _check_value(value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise ValueError(f"{value!r} is not a label value")
    return value


LabelKey = Annotated[
    str,
    AfterValidator(_check_key),
    WithJsonSchema({"type": "string", "pattern": KEY_PATTERN}),
]
LabelValue = Annotated[
    str,
    AfterValidator(_check_value),
    WithJsonSchema({"type": "string", "pattern": VALUE_PATTERN}),
]


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
        description="How the key's value relates to `values`."
    )
    values: tuple[LabelValue, ...] = Field(
        default=(),
        strict=False,
        description="The values for In and NotIn; none for Exists and DoesNotExist.",
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
    # Without a limit the rules may cost more than an API server allows.
    schema["maxProperties"] = 1000
    # Else the API server would drop an entry that is null, and the rest would select more.
    for values in schema["patternProperties"].values():
        values["nullable"] = True
    schema["x-kubernetes-validations"] = [
        {
            "rule": f"self.all(key, key.matches('{KEY_PATTERN}'))",
            "message": "has a key that is not a label key",
            "messageExpression": f"self.filter(key, !key.matches('{KEY_PATTERN}'))[0]"
            " + ' is not a label key'",
        },
        {
            "rule": "self.all(key, type(self[key]) == string)",
            "message": "has a key whose value is empty, should be a string",
            "messageExpression": "self.filter(key, type(self[key]) != string)[0]"
            " + ' is empty, should be a string'",
        },
    ]


class LabelSelector(StrictModel):
    """A Kubernetes label selector: every part has to hold. `{}` selects everything."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    match_labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict,
        description="Labels that have to be there with exactly these values.",
        json_schema_extra=_add_label_rules,
    )
    match_expressions: tuple[Requirement, ...] = Field(
        default=(), strict=False, description="Requirements, all of which have to hold."
    )

    def __hash__(self) -> int:
        """What has no hash, pydantic copies for each policy that leaves it out."""
        return hash((frozenset(self.match_labels.items()), self.match_expressions))

    def names(self, key: str) -> frozenset[str]:
        """The values of `key` that the selector spells out by `matchLabels` or `In`."""
        spelled = {self.match_labels[key]} if key in self.match_labels else set()
        for requirement in self.match_expressions:
            if requirement.key == key and requirement.operator == "In":
                spelled.update(requirement.values)
        return frozenset(spelled)


def parse_labels(pairs: Iterable[str]) -> dict[str, str]:
    """Labels from texts such as `team=build`. Raises ValueError."""
    labels = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise ValueError(f"label {pair!r} is not of the form key=value")
        labels[_check_key(key)] = _check_value(value)
    return labels


def match_all(_labels: Labels) -> bool:
    """The matcher of an empty selector."""
    return True


def compile_selector(selector: LabelSelector) -> Matcher:
    """A predicate over labels that holds exactly where the selector does."""
    tests = [_equals(key, value) for key, value in selector.match_labels.items()]
    tests += [compile_requirement(r.operator, r.key, r.values) for r in selector.match_expressions]
    if not tests:
        return match_all
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


def required_label(selector: LabelSelector) -> tuple[str, frozenset[str] | None] | None:
    """A label without which the selector does not hold: its key, and its values or None for any.

    None where there is no such label.
    """
    for key, value in selector.match_labels.items():
        return key, frozenset({value})
    for requirement in selector.match_expressions:
        if requirement.operator in ("In", "Exists"):
            return requirement.key, frozenset(requirement.values) or None
    return None


def compile_requirement(operator: str, key: str, values: tuple[str, ...]) -> Matcher:
    """A predicate for one requirement; the operators are those of labels and of node affinity.

    Raises ValueError for an operator that it does not know.
    """
    chosen = frozenset(values)
    match operator:
        case "In":
            return lambda labels: labels.get(key) in chosen
        case "NotIn":
            return lambda labels: labels.get(key) not in chosen
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
        case "Gt" | "Lt":
            return _compares(operator, key, values)
    raise ValueError(f"unknown selector operator {operator!r}")


def _equals(key: str, value: str) -> Matcher:
    return lambda labels: labels.get(key) == value


def _compares(operator: str, key: str, values: tuple[str, ...]) -> Matcher:
    bound = _integer(values[0])
    if bound is None:
        raise ValueError(f"{operator} compares with a whole number, not with {values[0]!r}")

    def compare(labels: Labels) -> bool:
        number = _integer(labels.get(key, ""))
        if number is None:
            return False
        return number > bound if operator == "Gt" else number < bound

    return compare


def _integer(text: str) -> int | None:
    """The number in a label, as Go's strconv.ParseInt takes it."""
    return int(text) if re.fullmatch("[-+]?[0-9]{1,18}", text) else None
