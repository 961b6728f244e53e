"""Turns a JSON Schema into a structural schema, the form that a CRD may hold.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

from webhook.core.types import Json

# Keywords that a structural schema may hold unchanged.
_KEPT_KEYWORDS = (
    "type",
    "format",
    "description",
    "required",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "nullable",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
)
# Keywords that are dropped. CEL rules replace `if`, `then`, `else` and `minProperties`, with better
# messages. Titles only repeat the keys.
_DROPPED_KEYWORDS = frozenset({"$defs", "else", "if", "minProperties", "then", "title"})


def structural_schema(schema: Json, definitions: Mapping[str, Json]) -> Json:
    """Return a JSON Schema as a structural schema.

    `definitions` are the schemas to which `$ref` refers, by name. Raises ValueError for a keyword
    that a structural schema cannot hold.
    """
    schema = dict(schema)
    if "$ref" in schema:
        # The description of the field replaces the description of its type.
        schema = {**deepcopy(definitions[schema.pop("$ref").rpartition("/")[2]]), **schema}
    if "anyOf" in schema:
        # A field that may be null needs no mention: the API server drops nulls before it validates.
        (only,) = [option for option in schema.pop("anyOf") if option != {"type": "null"}]
        return structural_schema({**only, **schema}, definitions)
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    structural = {keyword: schema.pop(keyword) for keyword in _KEPT_KEYWORDS if keyword in schema}
    default = schema.pop("default", None)
    if not _is_empty(default):
        structural["default"] = default
    if "properties" in schema:
        structural["properties"] = {
            key: structural_schema(inner, definitions)
            for key, inner in schema.pop("properties").items()
        }
    if "items" in schema:
        structural["items"] = structural_schema(schema.pop("items"), definitions)
    # A CRD cannot hold `additionalProperties: false`. The API server prunes or refuses unknown keys
    # without it.
    values = schema.pop("additionalProperties", None)
    if "patternProperties" in schema:
        # A CRD has no patterns for keys. A CEL rule of the field checks them.
        (values,) = schema.pop("patternProperties").values()
    if isinstance(values, dict):
        structural["additionalProperties"] = structural_schema(values, definitions)
    unknown = schema.keys() - _DROPPED_KEYWORDS
    if unknown:
        raise ValueError(f"a CRD cannot say {', '.join(sorted(unknown))}")
    return structural


def _is_empty(default: object) -> bool:
    """Return whether a default is empty, such as `[]`. Empty defaults are left out of the CRD."""
    if isinstance(default, dict):
        return all(map(_is_empty, default.values()))
    return default is None or default in ("", [])
