"""What the configurations for CRI-O and containerd share: releases and RuntimeClasses."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from webhook.core.defects.versions import Version, parse_version

Json: TypeAlias = dict[str, Any]

_RELEASE = re.compile(r"v?\d+\.\d+(\.\d+)?([-+~].*)?", re.ASCII)
"""Whole, with what vendors add; not `1.7.x`."""


class UnsupportedError(ValueError):
    """What the runtime cannot do, and what to do about it."""


class ImpossibleReleaseError(ValueError):
    """A text that is no release of the runtime in question."""


def check_release(
    text: str, runtime: str, *, example: str, patch_matters: Collection[tuple[int, int]]
) -> Version:
    """The release in a text such as `example`, or with `cri-o://` before it, as nodes state it.

    Within the minors of `patch_matters` it has to be whole. Raises ImpossibleReleaseError.
    """
    name, separator, rest = text.rpartition("://")
    if separator and name != runtime:
        raise ImpossibleReleaseError(f"{text!r} is not a release of {runtime}")
    parts, found = _RELEASE.fullmatch(rest), parse_version(rest)
    if parts is None or found is None:
        raise ImpossibleReleaseError(f"{text!r} is not a version such as {example}")
    if parts[1] is None and found[:2] in patch_matters:
        raise ImpossibleReleaseError(f"{rest} could be {found}: give the whole release")
    return found


def runtime_class_manifest(name: str, handler: str, node_selector: Mapping[str, str]) -> Json:
    """The RuntimeClass `name`. With a nodeSelector its pods go to matching nodes only."""
    made: Json = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": handler,
    }
    if node_selector:
        made["scheduling"] = {"nodeSelector": dict(node_selector)}
    return made
