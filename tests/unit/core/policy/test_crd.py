"""Tests that the schema for editors agrees with the model, and of how the CRD is made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.data.invalid_policies import EXAMPLE_POLICIES, RIGHT, WRONG
from tests.support.factories import Json
from webhook.core.policy.crd import crd, editor_schema
from webhook.core.policy.model import parse_policy
from webhook.core.policy.structural_schema import structural_schema
from webhook.core.policy.validation_errors import InvalidPolicyError


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


CRD = crd()


def test_crd_is_an_independent_copy_each_time() -> None:
    changed = crd()
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"].clear()
    changed["spec"]["versions"][0]["additionalPrinterColumns"].clear()
    assert crd() == CRD


@pytest.mark.parametrize("name", [*EXAMPLE_POLICIES, *RIGHT])
def test_valid_policy_is_valid_for_editors_and_model(name: str) -> None:
    document = {**EXAMPLE_POLICIES, **RIGHT}[name]
    parse_policy(document)
    assert list(errors(EDITOR, document)) == []


@pytest.mark.parametrize("name", WRONG)
def test_invalid_policy_is_invalid_for_editors_and_model(name: str) -> None:
    wrong = WRONG[name]
    with pytest.raises(InvalidPolicyError) as raised:
        parse_policy(wrong.document)
    paths = [str(problem) for problem in raised.value.errors]
    assert all(path.startswith(wrong.path) for path in paths), paths
    assert bool(list(errors(EDITOR, wrong.document))) is not wrong.only_rule


MESSAGES = {
    "text as priority": "is a string, should be a whole number",
    "fraction as priority": "is a number, should be a whole number",
    "truth as label": "is true or false, should be a string",
    "mapping as description": "is a mapping, should be a string",
    "list as remedies": "is a list, should be a mapping",
    "nothing as glob": "is empty, should be a string",
    "number as duration": "10 is not a duration: write it as 10ms, 1.5s or 1m30s",
    "duration '61s'": "'61s' is longer than 1m, the maximum delay of a pod",
    "no spec": "is missing",
    "a remedy of nothing": "is empty; write {} for the defaults",
    "empty remedies": "no remedy is set: name at least one",
    "unknown key": "unknown key; known are apiVersion, kind, metadata, spec, status",
    "unknown setting": "unknown key; did you mean minLifetime?",
    "unknown action": "is 'Enforce'; it can be 'Mutate' or 'Audit'",
    "other version": "is 'podsettle.dev/v1'; podsettle reads podsettle.dev/v1alpha1",
    "priority too high": "Input should be less than or equal to 2147483647",
    "no effect": "minLifetime and sleep are both 0: leave the remedy out instead",
    "none that may run again": "is empty; it takes at least one",
    "gate of '0'": "timeout is 0: leave the remedy out instead",
    "soft limit above the hard one": "soft is above hard",
    "limits for no container": "initContainers and containers are both empty, so nothing is "
    "wrapped: leave the remedy out instead",
    "node label '=a'": "'' is not a label key",
    "node label 'a=b=c'": "'b=c' is not a label value",
    "start gate with nine targets": "has 9 entries; it takes at most 8",
    "target of no kind": "set exactly one of tcp, http and dns",
    "no name of a class": "'A_b' is not a valid name (a DNS subdomain)",
    "images from nowhere": "lookup: Registry needs registries or mirrors: podsettle asks no others",
    "registry ''": "'' can match no registry: write it as quay.io, *.example.com or host:5000",
    "In {}": "operator In needs values",
    "Exists {'values': ['b']}": "operator Exists takes no values",
}


def test_message_of_a_mistake_says_what_to_write_instead() -> None:
    found = {}
    for name in MESSAGES:
        with pytest.raises(InvalidPolicyError) as raised:
            parse_policy(WRONG[name].document)
        found[name] = raised.value.errors[0].message
    assert found == MESSAGES


# A keyword that the generator cannot express is an error. It must not be dropped silently.


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "contentEncoding": "base64"},
        {"type": "integer", "exclusiveMaximum": 5},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "object", "properties": {"a": {"oneOf": []}}},
    ],
)
def test_keyword_that_a_crd_cannot_hold_is_an_error(schema: Json) -> None:
    with pytest.raises(ValueError, match=r"a CRD cannot say|too many values"):
        structural_schema(schema, {})
