"""Compares the SettlePolicy CRD of a cluster with the CRD of this release.

Helm installs a CRD and never upgrades it. The API server drops fields that the installed CRD lacks,
without an error. The comparison uses the schema and no version label, because the API server uses
only the schema, and the schema shows which field is missing.
"""

from __future__ import annotations

from typing import NamedTuple

from webhook.core.policy.crd import crd
from webhook.core.types import Json


class CrdDifference(NamedTuple):
    """The differences between an installed CRD and this release's CRD, as paths into a policy."""

    lacks: tuple[str, ...] = ()
    """Fields and values of this release that the installed CRD lacks. If there are any, the
    installed CRD is older."""
    other_defaults: tuple[str, ...] = ()
    """Defaults that differ, if the two CRDs have the same fields and values. Then it is unknown
    which of them is newer."""


def crd_difference(installed: Json) -> CrdDifference:
    """Return how an installed CustomResourceDefinition differs from this release's.

    Defaults are compared only if both have the same fields and values. A CRD with additional fields
    is newer, so its defaults may be newer too.
    """
    (version,) = crd()["spec"]["versions"]
    name = version["name"]
    served = [
        each
        for each in installed["spec"]["versions"]
        if each["name"] == name and each.get("served")
    ]
    if not served:
        return CrdDifference((f"version {name}",))
    expected, found = map(_spec_schema, (version, served[0]))
    lacks, defaults = _compare(expected, found, "spec")
    newer, _ = _compare(found, expected, "spec")
    return CrdDifference(tuple(lacks), () if lacks or newer else tuple(defaults))


def _spec_schema(version: Json) -> Json:
    whole: Json = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return (whole.get("properties") or {}).get("spec") or {}


def _compare(expected: Json, installed: Json, path: str) -> tuple[list[str], list[str]]:
    """Return the fields and enum values that a schema lacks, and the defaults that differ."""
    if installed.get("x-kubernetes-preserve-unknown-fields"):
        return [], []
    known, default = installed.get("enum"), installed.get("default")
    values = [] if known is None else (expected.get("enum") or ())
    lacks = [f"{path}: {value}" for value in values if value not in (known or ())]
    wanted = expected.get("default")
    defaults = [f"{path}: {default}, not {wanted}"] if wanted != default else []
    inner = [(f".{key}", each) for key, each in (expected.get("properties") or {}).items()]
    fields = {f".{key}": each for key, each in (installed.get("properties") or {}).items()}
    if isinstance(expected.get("items"), dict):
        inner.append(("[]", expected["items"]))
        fields["[]"] = installed.get("items") or {}
    for step, schema in inner:
        if step not in fields:
            lacks.append(path + step)
            continue
        more_lacks, more_defaults = _compare(schema, fields[step], path + step)
        lacks += more_lacks
        defaults += more_defaults
    return lacks, defaults
