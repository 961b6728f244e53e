"""The SettlePolicy CRD and the JSON Schema for editors, both generated from the models.

JSON Schema cannot express every rule of the models' validators. The models state the other rules in
CEL too, as `x-kubernetes-validations` beside the validators. `make docs` writes both files.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from webhook.core.constants import API_VERSION, DNS_SUBDOMAIN, GROUP, KIND
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.structural_schema import structural_schema
from webhook.core.types import Json

PLURAL = "settlepolicies"
CRD_NAME = f"{PLURAL}.{GROUP}"

# The API server's own descriptions of these fields in every built-in kind.
_API_VERSION_DESCRIPTION = (
    "APIVersion defines the versioned schema of this representation of an object. Servers should "
    "convert recognized schemas to the latest internal value, and may reject unrecognized values. "
    "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/"
    "api-conventions.md#resources"
)
_KIND_DESCRIPTION = (
    "Kind is a string value representing the REST resource this object represents. Servers may "
    "infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. "
    "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/"
    "api-conventions.md#types-kinds"
)

_CONDITION_SCHEMA: Json = {
    "type": "object",
    "description": "One condition of the policy.",
    "required": ["type", "status", "lastTransitionTime", "reason", "message"],
    "properties": {
        "type": {
            "type": "string",
            "description": "The condition's type: Accepted, RuntimeClassesFound, StillNeeded, "
            "WebhookScoped or CRDCurrent.",
            "maxLength": 316,
            "pattern": rf"^({DNS_SUBDOMAIN}/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        },
        "status": {
            "type": "string",
            "description": "Whether the condition holds.",
            "enum": ["True", "False", "Unknown"],
        },
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "The metadata.generation of the policy that the condition describes.",
        },
        "lastTransitionTime": {
            "type": "string",
            "format": "date-time",
            "description": "When the status last changed.",
        },
        "reason": {
            "type": "string",
            "description": "The reason for the status, as a CamelCase word for programs.",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        },
        "message": {
            "type": "string",
            "description": "The reason for the status, as a sentence for people.",
            "maxLength": 32768,
        },
    },
}

_STATUS_SCHEMA: Json = {
    "type": "object",
    "description": "The state of the policy. Written by podsettle.",
    "properties": {
        "conditions": {
            "type": "array",
            "description": "Accepted: the policy is valid and in force. RuntimeClassesFound: the "
            "RuntimeClasses that it names exist. StillNeeded: a node has the problem that the "
            "policy cures. WebhookScoped: the API server evaluates the policy's selectors before "
            "it calls podsettle. CRDCurrent: the installed CRD is not older than podsettle.",
            "items": _CONDITION_SCHEMA,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "The metadata.generation of the policy that the status describes.",
        },
        "matchedNamespaces": {
            "type": "integer",
            "format": "int32",
            "minimum": 0,
            "description": "The number of namespaces that the policy covers.",
        },
    },
}


def _column(name: str, kind: str, path: str, description: str, **more: int) -> Json:
    """Return a column of `kubectl get`. `path` leads to a value, or is the type of a condition."""
    if "." not in path:
        path = f'.status.conditions[?(@.type=="{path}")].status'
    return {"name": name, "type": kind, "jsonPath": path, "description": description, **more}


def _printer_columns() -> list[Json]:
    found = "Whether the RuntimeClasses that the policy names exist."
    needed = "Whether a node has the problem that the policy cures."
    covered = "The number of namespaces that the policy covers."
    action = "Mutate: apply the remedies. Audit: change nothing."
    return [
        _column(
            "Priority", "integer", ".spec.priority", "The policy with the higher priority wins."
        ),
        _column("Action", "string", ".spec.action", action),
        _column("Accepted", "string", "Accepted", "Whether the policy is valid and in force."),
        _column("Classes found", "string", "RuntimeClassesFound", found),
        _column("Still needed", "string", "StillNeeded", needed),
        _column("Namespaces", "integer", ".status.matchedNamespaces", covered),
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        _column(
            "Description", "string", ".spec.description", "What the policy is for.", priority=1
        ),
    ]


def crd() -> Json:
    """Return the CustomResourceDefinition of SettlePolicy."""
    version = {
        "name": API_VERSION.rpartition("/")[2],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _openapi_schema()},
        "subresources": {"status": {}},
        "additionalPrinterColumns": _printer_columns(),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["settle"],
            },
            "scope": "Cluster",
            "versions": [version],
        },
    }


def editor_schema() -> Json:
    """Return the JSON Schema of a SettlePolicy document. It forbids unknown keys."""
    schema = _model_schema()
    schema["properties"]["status"] = _forbid_unknown_keys(_STATUS_SCHEMA)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_drop_kubernetes_keywords(schema),
    }


def _model_schema() -> Json:
    # In serialization mode defaults have the form that authors write: 500ms, not 500.
    return SettlePolicy.model_json_schema(mode="serialization")


def _openapi_schema() -> Json:
    model = _model_schema()
    whole = structural_schema(model, model["$defs"])
    name = whole["properties"]["metadata"]["properties"]["name"]
    return {
        "type": "object",
        "description": whole["description"],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": _API_VERSION_DESCRIPTION},
            "kind": {"type": "string", "description": _KIND_DESCRIPTION},
            # The API server validates metadata itself. A CRD may only restrict the name further.
            "metadata": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": name["maxLength"]}},
            },
            "spec": whole["properties"]["spec"],
            "status": deepcopy(_STATUS_SCHEMA),
        },
    }


def _forbid_unknown_keys(schema: Json) -> Json:
    """Return a hand-written schema that forbids unknown keys."""
    closed = dict(schema)
    if "properties" in schema:
        closed["properties"] = {
            key: _forbid_unknown_keys(value) for key, value in schema["properties"].items()
        }
        closed["additionalProperties"] = False
    if "items" in schema:
        closed["items"] = _forbid_unknown_keys(schema["items"])
    return closed


def _drop_kubernetes_keywords(node: Any, *, keys: bool = True) -> Any:
    """Return a schema without titles and without keywords that only Kubernetes reads.

    `keys` says whether the mapping's keys are keywords rather than names of properties.
    """
    if isinstance(node, list):
        return [_drop_kubernetes_keywords(item) for item in node]
    if not isinstance(node, dict):
        return node
    if keys:
        node = {k: v for k, v in node.items() if not k.startswith(("x-", "nullable", "title"))}
        if "patternProperties" in node:
            node["additionalProperties"] = False
    return {
        key: _drop_kubernetes_keywords(value, keys=not keys or key not in ("properties", "$defs"))
        for key, value in node.items()
    }
