"""Factories of defects that are not in the catalogue."""

from __future__ import annotations

from typing import Any

from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.defect import Affected, Defect
from webhook.core.defects.versions import Runtime, Version, parse_runtime, parse_version

_PINNED = {
    *("cri-o-9840", "crio-selinux-relabel", "containerd-slow-umount"),
    *("kubelet-serving-certificate", "selinux-mount", "fsgroup-ownership-walk"),
}
PINNED: tuple[Defect, ...] = tuple(each for each in DEFECTS if each.id in _PINNED)
"""A part of the catalogue, for tests that count on nodes without a defect. A new file in the
catalogue changes none of their results."""

Json = dict[str, Any]

LINK = "https://example.org/1"


def entry(*fixed: str, **keys: Any) -> Json:
    """Return the affected releases of a component, CRI-O by default, as in a YAML file."""
    fixes = [{"release": release, "link": LINK} for release in fixed]
    return {"component": "cri-o", "fixed": fixes, **keys}


def affected(*fixed: str, **keys: Any) -> Affected:
    """Return the affected releases of a component, CRI-O by default."""
    return Affected.model_validate(entry(*fixed, **keys))


def defect_document(*entries: Json, **keys: Any) -> Json:
    """Return a defect of the first component in `entries`, as in a YAML file."""
    return {
        "id": "made-up",
        "title": "A made-up defect",
        "component": entries[0]["component"],
        "runs": f"an affected {entries[0]['component']}",
        "symptom": [{"where": "a log", "message": "it failed"}],
        "cause": "A race.",
        "affected": list(entries),
        "remedies": ["postInitSleep"],
        "advice": "Upgrade.",
        "page": "exit-255.md",
        "links": [LINK],
        "evidence": [{"figure": "1 of 2", "how": "measured", "date": "2026-11-21"}],
        **keys,
    }


def defect(*entries: Json, **keys: Any) -> Defect:
    """Return a defect of the first component in `entries`."""
    return Defect.model_validate(defect_document(*entries, **keys))


def software(runtime: str, kubelet: str = "v1.34.0") -> tuple[Runtime, Version | None]:
    """Return a node's runtime and kubelet from the texts in its status."""
    return parse_runtime(runtime), parse_version(kubelet)
