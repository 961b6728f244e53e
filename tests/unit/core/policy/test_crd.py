"""Tests that the CRD and the schema for editors agree with the model and are well-formed."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from tests.data.invalid_policies import EXAMPLE_POLICIES, RIGHT, WRONG
from tests.support.factories import Json
from tests.support.json_schema import EDITOR, errors
from webhook.core.policy.crd import crd
from webhook.core.policy.model import SettlePolicySpec, parse_policy
from webhook.core.policy.structural_schema import structural_schema
from webhook.core.policy.validation_errors import InvalidPolicyError

CRD = crd()
(VERSION,) = CRD["spec"]["versions"]
OPENAPI: Json = VERSION["schema"]["openAPIV3Schema"]


def nodes(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Yield every schema in a structural schema, with its path."""
    yield path, schema
    for key, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{key}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


NODES = dict(nodes(OPENAPI))

# https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
# #specifying-a-structural-schema, without the parts that a SettlePolicy does not use.
STRUCTURAL: dict[str, set[str]] = {
    "object": {"properties", "required", "additionalProperties", "maxProperties"}
    | {"x-kubernetes-map-type"},
    "array": {"items", "minItems", "maxItems"}
    | {"x-kubernetes-list-type", "x-kubernetes-list-map-keys"},
    "string": {"enum", "format", "pattern", "minLength", "maxLength"},
    "integer": {"format", "minimum", "maximum"},
    "boolean": set(),
}
ANYWHERE = {"type", "description", "default", "nullable", "x-kubernetes-validations"}


@pytest.mark.parametrize("path", NODES)
def test_crd_schema_is_structural(path: str) -> None:
    schema = NODES[path]
    assert schema.keys() <= ANYWHERE | STRUCTURAL[schema["type"]]
    if schema["type"] == "array":
        assert "items" in schema
    if schema["type"] == "object":
        assert ("properties" in schema) != ("additionalProperties" in schema)
        assert set(schema.get("required", ())) <= schema.get("properties", {}).keys()
    if schema.get("format") == "int32":
        assert -(2**31) <= schema["minimum"] <= schema.get("maximum", 0) < 2**31
    if "default" in schema:
        assert schema["default"] is not None
        assert list(errors(schema, schema["default"])) == []
    for rule in schema.get("x-kubernetes-validations", ()):
        assert rule["message"].strip() == rule["message"] != ""
        assert "\n" not in rule["rule"] + rule["message"]


def test_crd_restricts_only_the_name_in_metadata() -> None:
    assert NODES[".metadata"].keys() == {"type", "properties"}
    assert NODES[".metadata"]["properties"].keys() == {"name"}


def test_every_crd_field_has_a_description() -> None:
    fields = [path for path in NODES if not path.endswith(("[]", "{}")) and ".metadata" not in path]
    assert len(fields) > 30
    assert [path for path in fields if not NODES[path].get("description", "").endswith(".")
            and path not in (".apiVersion", ".kind")] == []  # fmt: skip


def test_crd_has_the_names_of_the_contract() -> None:
    assert CRD["metadata"]["name"] == "settlepolicies.podsettle.dev"
    assert CRD["spec"]["scope"] == "Cluster"
    assert CRD["spec"]["names"]["shortNames"] == ["settle"]
    assert (VERSION["name"], VERSION["served"], VERSION["storage"]) == ("v1alpha1", True, True)
    assert VERSION["subresources"] == {"status": {}}


def test_crd_is_an_independent_copy_each_time() -> None:
    changed = crd()
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"].clear()
    changed["spec"]["versions"][0]["additionalPrinterColumns"].clear()
    assert crd() == CRD


# The model, the CRD and the schema for editors agree.


class Field(typing.NamedTuple):
    info: FieldInfo
    required: bool

    @property
    def default(self) -> Any:
        """The default in the form that authors write."""
        value = self.info.get_default(call_default_factory=True)
        if value is None:
            return None
        # pydantic keeps the constraints in separate objects. The last item is a fallback.
        annotation: Any = typing.Annotated[self.info.annotation, *self.info.metadata, None]
        return TypeAdapter(annotation).dump_python(value, mode="json", by_alias=True)


def fields(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, Field]]:
    for name, info in model.model_fields.items():
        path = f"{prefix}.{info.alias or name}"
        yield path, Field(info, info.is_required())
        inner = model_in(info.annotation)
        if inner is not None:
            many = "[]" if typing.get_origin(info.annotation) is tuple else ""
            yield from fields(inner, path + many)


def model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (model_in(part) for part in typing.get_args(annotation))
    return next((model for model in found if model is not None), None)


FIELDS = dict(fields(SettlePolicySpec, ".spec"))
EMPTY: tuple[Any, ...] = (None, "", [], {}, {"matchLabels": {}, "matchExpressions": []})


def editor_nodes(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    if "anyOf" in schema:
        (only,) = [option for option in schema["anyOf"] if option != {"type": "null"}]
        schema = {**only, **schema}
    if "$ref" in schema:
        schema = {**EDITOR["$defs"][schema["$ref"].rpartition("/")[2]], **schema}
    yield path, schema
    for key, inner in schema.get("properties", {}).items():
        yield from editor_nodes(inner, f"{path}.{key}")
    if "items" in schema:
        yield from editor_nodes(schema["items"], f"{path}[]")


EDITOR_NODES = dict(editor_nodes(EDITOR))


def test_model_and_schemas_have_the_same_keys() -> None:
    def keys(of: dict[str, Json]) -> set[str]:
        return {path for path in of if path.startswith(".spec.") and path[-1] not in "]}"}

    assert keys(NODES) == FIELDS.keys() == keys(EDITOR_NODES)


@pytest.mark.parametrize("path", FIELDS)
def test_crd_field_agrees_with_the_model(path: str) -> None:
    field, node, editor = FIELDS[path], NODES[path], EDITOR_NODES[path]
    assert node["description"] == editor["description"] == field.info.description
    parent, _, key = path.rpartition(".")
    assert (key in NODES[parent].get("required", ())) is field.required
    assert (key in EDITOR_NODES[parent].get("required", ())) is field.required
    if field.required:
        assert "default" not in node
    elif field.default in EMPTY:
        # Empty defaults are not written into objects.
        assert "default" not in node
    else:
        assert node["default"] == editor["default"] == field.default


def test_editor_schema_forbids_unknown_keys_except_in_metadata() -> None:
    for path, schema in EDITOR_NODES.items():
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is (path == ".metadata"), path


def test_editor_schema_has_no_kubernetes_keywords() -> None:
    text = repr(EDITOR)
    assert "x-kubernetes" not in text
    assert "nullable" not in text
    assert "$id" not in text
    assert EDITOR["$schema"] == "https://json-schema.org/draft/2020-12/schema"


# Valid and invalid documents.


@pytest.mark.parametrize("name", EXAMPLE_POLICIES)
def test_examples_are_valid_under_both_schemas(name: str) -> None:
    assert list(errors(OPENAPI, EXAMPLE_POLICIES[name])) == []
    assert list(errors(EDITOR, EXAMPLE_POLICIES[name])) == []


@pytest.mark.parametrize("name", RIGHT)
def test_valid_policy_is_valid_for_editors_and_model(name: str) -> None:
    parse_policy(RIGHT[name])
    assert list(errors(EDITOR, RIGHT[name])) == []


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
    "start gate with nine targets": "has 9 targets; it takes at most 8",
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
