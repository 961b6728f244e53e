"""A validator of the JSON Schema keywords that the schema for editors uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.support.factories import Json
from webhook.core.policy.crd import editor_schema


def errors(schema: Json, value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths at which a value violates a schema. Supports the keywords that are used."""
    if "$ref" in schema:
        yield from errors(EDITOR["$defs"][schema["$ref"].rpartition("/")[2]], value, path)
    if "anyOf" in schema and all(list(errors(option, value)) for option in schema["anyOf"]):
        yield path
    if "if" in schema:
        branch = "else" if list(errors(schema["if"], value)) else "then"
        yield from errors(schema[branch], value, path)
    if "type" in schema:
        wanted = TYPES[schema["type"]]
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            yield path
            return
    yield from _value_errors(schema, value, path)
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from errors(schema.get("items", {}), item, f"{path}[{index}]")
    if isinstance(value, dict):
        yield from _key_errors(schema, value, path)


def _value_errors(schema: Json, value: Any, path: str) -> Iterator[str]:
    size = len(value) if isinstance(value, str | list | dict) else 0
    wrong = (
        ("const" in schema and value != schema["const"])
        or ("enum" in schema and value not in schema["enum"])
        or ("pattern" in schema and not re.search(schema["pattern"].replace("$", r"\Z"), value))
        or (isinstance(value, int) and not _in_range(schema, value))
        or any(size < schema.get(f"min{of}", 0) for of in ("Length", "Items", "Properties"))
        or any(size > schema.get(f"max{of}", size) for of in ("Length", "Items", "Properties"))
    )
    if wrong:
        yield path


def _in_range(schema: Json, value: int) -> bool:
    return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))


def _key_errors(schema: Json, value: Json, path: str) -> Iterator[str]:
    yield from (f"{path}.{key}" for key in schema.get("required", ()) if key not in value)
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key, inner in value.items():
        at = f"{path}.{key}"
        matching = [patterns[p] for p in patterns if re.search(p.replace("$", r"\Z"), key)]
        if key in properties:
            yield from errors(properties[key], inner, at)
        for schema_of_key in matching:
            yield from errors(schema_of_key, inner, at)
        if key not in properties and not matching:
            further = schema.get("additionalProperties", True)
            if further is False:
                yield at
            elif isinstance(further, dict):
                yield from errors(further, inner, at)


EDITOR = editor_schema()
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "null": (type(None),),
    "boolean": (bool,),
}
