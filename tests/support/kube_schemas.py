"""JSON Schemas for kubeconform, made from the OpenAPI document of a real API server.

They are stricter than the API server: an unknown field is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support.kube.cluster import Json, KubeCluster

# The name of a kind's file, in kubeconform's template format.
LOCATION = "{{ .Group }}_{{ .ResourceAPIVersion }}_{{ .ResourceKind }}.json"

_DRAFT = "http://json-schema.org/draft-07/schema#"
_REF = "#/definitions/"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def write_builtin(cluster: KubeCluster, directory: Path) -> None:
    """Write a schema file for each kind that the API server serves."""
    definitions: Json = cluster.request("GET", "/openapi/v2").body["definitions"]
    strict = {name: _strict(definition) for name, definition in definitions.items()}
    strict[_QUANTITY] = {"type": ["string", "number"]}
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", ()):
            needed = {each: strict[each] for each in sorted(_reachable(strict, name))}
            schema = {"$schema": _DRAFT, "$ref": f"{_REF}{name}", "definitions": needed}
            _write(directory, kind["group"], kind["version"], kind["kind"], schema)


def write_custom(crds: Iterable[Path], directory: Path) -> None:
    """Write a schema file for each version of each CustomResourceDefinition."""
    for path in crds:
        spec = yaml.safe_load(path.read_text())["spec"]
        for version in spec["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            # A CRD's schema omits `metadata`, because the API server validates it.
            schema["properties"]["metadata"] = {"type": "object"}
            _write(directory, spec["group"], version["name"], spec["names"]["kind"], schema)


def _write(directory: Path, group: str, version: str, kind: str, schema: Json) -> None:
    # kubeconform uses the text before a slash as the group. For `v1`, that is the whole text.
    path = directory / f"{group or version}_{version}_{kind.lower()}.json"
    path.write_text(json.dumps(schema))


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    made = {
        key: {name: _strict(each) for name, each in value.items()}
        if key == "properties"
        else value
        if key in ("enum", "default", "required")
        else _strict(value)
        for key, value in schema.items()
    }
    open_ended = made.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in made
    if made.get("properties") and not open_ended:
        made["additionalProperties"] = False
    return made


def _reachable(definitions: Json, name: str) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += _references(definitions[each])
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix(_REF)
        for each in schema.values():
            yield from _references(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each)
