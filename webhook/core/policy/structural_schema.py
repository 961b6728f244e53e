"""JSON Schemas as a CRD may hold them: structural schemas.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

# What a CRD may say as well.
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
# Said by rules, which have better messages; and what says nothing.
_DROPPED_KEYWORDS = frozenset({"$defs", "else", "if", "minProperties", "then", "title"})


def structural_schema(schema: Json, definitions: Mapping[str, Json]) -> Json:
    """A schema as a CRD may hold it. Raises ValueError for a keyword that has no place there."""
    schema = dict(schema)
    if "$ref" in schema:
        # The field's words on what it is go before those of its type.
        schema = {**deepcopy(definitions[schema.pop("$ref").rpartition("/")[2]]), **schema}
    if "anyOf" in schema:
        # The API server drops a null before it looks: it is as good as left out.
        (only,) = [option for option in schema.pop("anyOf") if option != {"type": "null"}]
        return structural_schema({**only, **schema}, definitions)
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    made = {keyword: schema.pop(keyword) for keyword in _KEPT_KEYWORDS if keyword in schema}
    default = schema.pop("default", None)
    if not _is_empty(default):
        made["default"] = default
    if "properties" in schema:
        made["properties"] = {
            key: structural_schema(inner, definitions)
            for key, inner in schema.pop("properties").items()
        }
    if "items" in schema:
        made["items"] = structural_schema(schema.pop("items"), definitions)
    # False is said by no CRD: the API server prunes or refuses unknown keys by itself.
    values = schema.pop("additionalProperties", None)
    if "patternProperties" in schema:
        # A CRD cannot tell keys apart: a rule of the field checks them.
        (values,) = schema.pop("patternProperties").values()
    if isinstance(values, dict):
        made["additionalProperties"] = structural_schema(values, definitions)
    unknown = schema.keys() - _DROPPED_KEYWORDS
    if unknown:
        raise ValueError(f"a CRD cannot say {', '.join(sorted(unknown))}")
    return made


def _is_empty(default: object) -> bool:
    """Whether a default is what is there anyway: objects stay free of `[]`, `{}` and `""`."""
    if isinstance(default, dict):
        return all(map(_is_empty, default.values()))
    return default is None or default in ("", [])
