"""Compares the SettlePolicy CRD of a cluster with the CRD of this release.

Helm installs a CRD and never upgrades it. The API server drops fields that the installed CRD lacks,
without an error. The comparison uses the schema and no version label, because the API server uses
only the schema, and the schema shows which field is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

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
            version
            for version in installed["spec"]["versions"]
            if version["name"] == name and version.get("served")
        ]
        if not served:
            return CrdDifference((f"version {name}",))
        expected = self._version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        schema: Json = (served[0].get("schema") or {}).get("openAPIV3Schema") or {}
        installed_schema = (schema.get("properties") or {}).get("spec") or {}
        lacking = tuple(_lacking(expected, installed_schema, "spec"))
        if lacking or next(_lacking(installed_schema, expected, "spec"), None) is not None:
            return CrdDifference(lacking)
        return CrdDifference(
            other_defaults=tuple(_other_defaults(expected, installed_schema, "spec"))
        )


def _lacking(
    expected: Mapping[str, Any], installed_schema: Mapping[str, Any], path: str
) -> Iterator[str]:
    """Yield the properties and enum values that the installed schema lacks."""
    if installed_schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    known = installed_schema.get("enum")
    if known is not None:
        yield from (
            f"{path}: {value}" for value in expected.get("enum") or () if value not in known
        )
    for key, inner in (expected.get("properties") or {}).items():
        found = (installed_schema.get("properties") or {}).get(key)
        if found is None:
            yield f"{path}.{key}"
        else:
            yield from _lacking(inner, found, f"{path}.{key}")
    if isinstance(expected.get("items"), Mapping):
        yield from _lacking(expected["items"], installed_schema.get("items") or {}, f"{path}[]")


def _other_defaults(
    expected: Mapping[str, Any], installed_schema: Mapping[str, Any], path: str
) -> Iterator[str]:
    """Yield the defaults that differ between this release's schema and the installed one."""
    if installed_schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if expected.get("default") != installed_schema.get("default"):
        yield f"{path}: {installed_schema.get('default')}, not {expected.get('default')}"
    for key, inner in (expected.get("properties") or {}).items():
        found = (installed_schema.get("properties") or {}).get(key) or {}
        yield from _other_defaults(inner, found, f"{path}.{key}")
