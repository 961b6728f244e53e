"""Errors of SettlePolicies and other manifests, worded for their authors."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from webhook.core.constants import API_VERSION
from webhook.core.json_path import json_path


@dataclass(frozen=True, slots=True)
class FieldError:
    """An error in one value of a SettlePolicy.

    `path` holds the keys and indices that lead to the value in the document.
    """

    path: tuple[str | int, ...]
    message: str

    def __str__(self) -> str:
        return f"{json_path(self.path)}: {self.message}" if self.path else self.message


class InvalidPolicyError(Exception):
    """Raised for a document that is not a valid SettlePolicy. Holds every error in it."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class ManifestProblem:
    """A problem with a manifest, and its place.

    `source` is a file, or an object in a cluster such as `SettlePolicy/ci`. `line` counts from 1
    and is 0 if the problem has no line.
    """

    source: str
    line: int
    message: str
    path: str = ""
    """The JSON path of the value. Empty if the problem concerns the whole manifest."""

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}" if self.line else self.source
        return ": ".join(part for part in (where, self.path, self.message) if part)


def field_error(detail: ErrorDetails, policy: type[BaseModel]) -> FieldError:
    """Return an error of pydantic as an error for the policy's author.

    `policy` is the model of the policy. Its keys are suggested in place of an unknown key.
    """
    # If the key itself is wrong, pydantic adds the step "[key]" after the key.
    path = tuple(detail["loc"])
    if len(path) > 1 and path[-1] == "[key]":
        path = path[:-1]
    context = detail.get("ctx", {})
    path += tuple(context.get("at", ()))
    given = detail["input"]
    match detail["type"]:
        case "extra_forbidden":
            return FieldError(path, _unknown_key(path, policy))
        case "missing":
            return FieldError(path, "is missing")
        case "literal_error" if path == ("apiVersion",):
            return FieldError(path, f"is {given!r}; podsettle reads {API_VERSION}")
        case "literal_error" if isinstance(given, str):
            return FieldError(path, f"is {given!r}; it can be {context['expected']}")
        case "literal_error":
            return FieldError(path, f"is {_json_type(given)}, should be {context['expected']}")
        case "value_error":
            return FieldError(path, str(context["error"]))
        case "string_pattern_mismatch":
            return FieldError(path, f"{given!r} is not a valid name (a DNS subdomain)")
        case "too_long":
            most = f"it takes at most {context['max_length']}"
            return FieldError(path, f"has {context['actual_length']} entries; {most}")
        case "string_type" | "bool_type" | "int_type" | "model_type" | "dict_type" | "tuple_type":
            return FieldError(
                path, f"is {_json_type(given)}, should be {_EXPECTED_TYPES[detail['type']]}"
            )
    return FieldError(path, detail["msg"])


_EXPECTED_TYPES = {
    "string_type": "a string",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "tuple_type": "a list",
}


def _json_type(value: object) -> str:
    """Return words for the JSON type of a value, for messages."""
    match value:
        case None:
            return "empty"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case Mapping():
            return "a mapping"
    return "a list"


def _unknown_key(path: tuple[str | int, ...], policy: type[BaseModel]) -> str:
    """Return the message for an unknown key, with a similar key or all known keys."""
    known = _known_keys(path[:-1], policy)
    close = difflib.get_close_matches(str(path[-1]), known, n=1)
    if close:
        return f"unknown key; did you mean {close[0]}?"
    return f"unknown key; known are {', '.join(known)}"


def _known_keys(path: tuple[str | int, ...], policy: type[BaseModel]) -> list[str]:
    """Return the keys that the model knows at a path."""
    fields = _fields_of(policy)
    for step in path:
        if isinstance(step, str) and fields:
            fields = _fields_of(model_of(fields[step].annotation))
    return sorted(fields)


def _fields_of(model: Any) -> dict[str, FieldInfo]:
    """Return the fields of a model by their keys. There are none if `model` is None."""
    return (
        {field.alias or name: field for name, field in model.model_fields.items()} if model else {}
    )


def model_of(annotation: Any) -> Any:
    """Return the model in an annotation such as `tuple[Requirement, ...]` or `Model | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (model_of(part) for part in getattr(annotation, "__args__", ()))
    return next((model for model in inner if model is not None), None)
