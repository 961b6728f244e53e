"""Turns a JSON Schema into a structural schema, the form that a CRD may hold.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

from webhook.core.types import Json

# CEL rules replace `if`, `then`, `else` and `minProperties`, with better messages.
_DROPPED_KEYWORDS = ("$defs", "else", "if", "minProperties", "then", "title")
_KEPT_KEYWORDS = (
    "type", "format", "description", "required", "enum", "pattern", "minimum", "maximum",
    "minLength", "maxLength", "minItems", "maxItems", "maxProperties", "nullable",
    "x-kubernetes-map-type", "x-kubernetes-validations",
    "default", "properties", "items", "additionalProperties",
)  # fmt: skip
"""The keywords of a structural schema, in the order in which the CRD has them."""


def structural_schema(schema: Json, definitions: Mapping[str, Json]) -> Json:
    """Return a JSON Schema as a structural schema.

    `definitions` are the schemas to which `$ref` refers, by name. Raises ValueError for a keyword
    that a structural schema cannot hold.
    """
    schema = {key: value for key, value in schema.items() if key not in _DROPPED_KEYWORDS}
    if "$ref" in schema:
        # The description of the field replaces the description of its type.
        return structural_schema(
            {**definitions[schema.pop("$ref").rpartition("/")[2]], **schema}, definitions
        )
    if "anyOf" in schema:
        # A field that may be null needs no mention: the API server drops nulls before it validates.
        (only,) = [option for option in schema.pop("anyOf") if option != {"type": "null"}]
        return structural_schema({**only, **schema}, definitions)
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if _is_empty(schema.get("default")):
        schema.pop("default", None)
    # A CRD cannot hold `additionalProperties: false`. The API server prunes or refuses unknown keys
    # without it. It has no patterns for keys either: a CEL rule of the field checks them.
    values = schema.pop("additionalProperties", None)
    if patterns := schema.pop("patternProperties", None):
        (values,) = patterns.values()
    if isinstance(values, dict):
        schema["additionalProperties"] = structural_schema(values, definitions)
    if "items" in schema:
        schema["items"] = structural_schema(schema["items"], definitions)
    if "properties" in schema:
        schema["properties"] = {
            key: structural_schema(inner, definitions)
            for key, inner in schema["properties"].items()
        }
    if unknown := schema.keys() - {*_KEPT_KEYWORDS}:
        raise ValueError(f"a CRD cannot say {', '.join(sorted(unknown))}")
    return {keyword: deepcopy(schema[keyword]) for keyword in _KEPT_KEYWORDS if keyword in schema}


def _is_empty(default: object) -> bool:
    """Return whether a default is empty, such as `[]`. Empty defaults are left out of the CRD."""
    if isinstance(default, dict):
        return all(map(_is_empty, default.values()))
    return default is None or default in ("", [])
