"""What the SettlePolicy CRD of a cluster lacks of this release's: Helm installs a CRD, and never
upgrades it.

The API server drops a field that the installed CRD does not have, without an error. A version
written on the CRD would only say what was written there; the schema is what the API server
works by, and names the field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from webhook.core.policy.crd import crd

Json: TypeAlias = dict[str, Any]


class CrdDifference(NamedTuple):
    """What sets an installed CRD apart from this release's, each as a path into a policy."""

    lacks: tuple[str, ...] = ()
    """Fields and values that this release reads. A CRD that lacks any is older."""
    other_defaults: tuple[str, ...] = ()
    """Defaults that differ, where nothing else tells which of the two is newer."""


class CrdComparison:
    """This release's CRD, generated once, to compare installed ones with."""

    def __init__(self) -> None:
        (self._version,) = crd()["spec"]["versions"]

    def difference(self, installed: Json) -> CrdDifference:
        """What an installed CustomResourceDefinition lacks.

        Empty for one that has more than this release's: it is newer, whatever its defaults.
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
    """The properties and enum values of our schema that theirs does not have."""
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
