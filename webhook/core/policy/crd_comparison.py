"""Compares the SettlePolicy CRD of a cluster with the CRD of this release.

Helm installs a CRD and never upgrades it. The API server drops fields that the installed CRD lacks,
without an error. The comparison is by schema rather than by a version label: the API server works
by the schema, and the schema names the missing field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from webhook.core.policy.crd import crd

Json: TypeAlias = dict[str, Any]


class CrdDifference(NamedTuple):
    """The differences between an installed CRD and this release's CRD, as paths into a policy."""

    lacks: tuple[str, ...] = ()
    """Fields and values of this release that the installed CRD lacks. Such a CRD is older."""
    other_defaults: tuple[str, ...] = ()
    """Defaults that differ, if the two CRDs have the same fields and values. Then it is unknown
    which of them is newer."""


class CrdComparison:
    """Compares installed CRDs with this release's CRD, which it generates once."""

    def __init__(self) -> None:
        (self._version,) = crd()["spec"]["versions"]

    def difference(self, installed: Json) -> CrdDifference:
        """Return how an installed CustomResourceDefinition differs from this release's.

        Defaults are compared only if both have the same fields and values. A CRD with additional
        fields is newer, so its defaults may be newer too.
        """
        name = self._version["name"]
        served = [
            each
            for each in installed["spec"]["versions"]
            if each["name"] == name and each.get("served")
        ]
        if not served:
            return CrdDifference((f"version {name}",))
        ours = self._version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        schema: Json = (served[0].get("schema") or {}).get("openAPIV3Schema") or {}
        theirs = (schema.get("properties") or {}).get("spec") or {}
        lacking = tuple(_lacking(ours, theirs, "spec"))
        if lacking or next(_lacking(theirs, ours, "spec"), None) is not None:
            return CrdDifference(lacking)
        return CrdDifference(other_defaults=tuple(_other_defaults(ours, theirs, "spec")))


def _lacking(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the properties and enum values of our schema that theirs lacks."""
    if theirs.get("x-kubernetes-preserve-unknown-fields"):
        return
    known = theirs.get("enum")
    if known is not None:
        yield from (f"{path}: {value}" for value in ours.get("enum") or () if value not in known)
    for key, inner in (ours.get("properties") or {}).items():
        found = (theirs.get("properties") or {}).get(key)
        if found is None:
            yield f"{path}.{key}"
        else:
            yield from _lacking(inner, found, f"{path}.{key}")
    if isinstance(ours.get("items"), Mapping):
        yield from _lacking(ours["items"], theirs.get("items") or {}, f"{path}[]")


def _other_defaults(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    if theirs.get("x-kubernetes-preserve-unknown-fields"):
        return
    if ours.get("default") != theirs.get("default"):
        yield f"{path}: {theirs.get('default')}, not {ours.get('default')}"
    for key, inner in (ours.get("properties") or {}).items():
        found = (theirs.get("properties") or {}).get(key) or {}
        yield from _other_defaults(inner, found, f"{path}.{key}")
