"""The selectors of kubectl's flags -l and --field-selector, for pods.

An API server evaluates them itself. Pods of manifests are compared here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from webhook.core.labels import Labels, Matcher, compile_requirement, parse_labels

_REQUIREMENT = re.compile(r"[^,(]+(?:\([^)]*\))?")
_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^\s=!]+)\s*(?P<operator>==?|!=)\s*(?P<value>[^\s=!]*)")
_EXISTENCE = re.compile(r"(?P<absent>!?)\s*(?P<key>[^\s=!()]+)")
_OPERATORS = {"in": "In", "notin": "NotIn"}
_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "spec.hostNetwork",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.nominatedNodeName",
    "status.phase",
    "status.podIP",
)
"""The fields by which the API server selects pods (kubernetes `pkg/apis/core/v1/conversion.go`)."""

_Field: TypeAlias = tuple[str, bool, str]
"""A field, whether its value has to be equal, and the value."""


class SelectorError(ValueError):
    """A selector that cannot be read. The text says which and why."""


@dataclass(frozen=True)
class PodSelection:
    """The pods to look at. Empty selectors select all."""

    labels: str = ""
    fields: str = ""

    def check(self) -> None:
        """Raise SelectorError if a selector cannot be read."""
        _ = self._matchers, self._fields

    @property
    def selects_all(self) -> bool:
        """Whether there is no selector."""
        return not (self.labels or self.fields)

    def query(self) -> dict[str, str]:
        """Return the parameters of a list of the API server."""
        parameters = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in parameters.items() if value}

    def selects(self, pod: Mapping[str, Any]) -> bool:
        """Return whether a pod of manifests is selected."""
        metadata = pod.get("metadata")
        found = metadata.get("labels") if isinstance(metadata, Mapping) else None
        labels: Labels = found if isinstance(found, Mapping) else {}
        return all(matches(labels) for matches in self._matchers) and all(
            (_text_at(pod, field) == value) is equal for field, equal, value in self._fields
        )

    @cached_property
    def _matchers(self) -> tuple[Matcher, ...]:
        return tuple(_matcher(part, self.labels) for part in _parts(self.labels))

    @cached_property
    def _fields(self) -> tuple[_Field, ...]:
        return tuple(_field(part) for part in self.fields.split(",") if part.strip())


def _parts(selector: str) -> list[str]:
    """Return the requirements of a label selector, which commas separate outside brackets."""
    parts = [part.strip() for part in _REQUIREMENT.findall(selector)]
    return [part for part in parts if part]


def _matcher(part: str, selector: str) -> Matcher:
    try:
        if found := _SET.fullmatch(part):
            values = tuple(value.strip() for value in found["values"].split(","))
            parse_labels(f"{found['key']}={value}" for value in values)
            return compile_requirement(_OPERATORS[found["operator"]], found["key"], values)
        if found := _EQUALITY.fullmatch(part):
            parse_labels([f"{found['key']}={found['value']}"])
            operator = "NotIn" if found["operator"] == "!=" else "In"
            return compile_requirement(operator, found["key"], (found["value"],))
        if found := _EXISTENCE.fullmatch(part):
            parse_labels([f"{found['key']}="])
            operator = "DoesNotExist" if found["absent"] else "Exists"
            return compile_requirement(operator, found["key"], ())
    except ValueError as error:
        raise SelectorError(f"label selector {selector!r}: {error}") from None
    raise SelectorError(f"label selector {selector!r}: {part!r} is no requirement, such as a=b")


def _field(part: str) -> _Field:
    found = re.fullmatch(r"([^=!]+)(==?|!=)(.*)", part.strip())
    if found is None:
        raise SelectorError(f"field selector: {part!r} is no requirement, such as a.b=c")
    name, operator, value = found.groups()
    if name not in _FIELDS:
        raise SelectorError(
            f"field selector: pods cannot be selected by {name!r}; known are {', '.join(_FIELDS)}"
        )
    return name, operator != "!=", value


def _text_at(pod: Mapping[str, Any], field: str) -> str:
    """Return the value of a field as the API server compares it. An absent one is empty."""
    value: Any = pod
    for step in field.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if field == "spec.hostNetwork":
        return "true" if value is True else "false"
    return value if isinstance(value, str) else ""
