"""What the configurations for CRI-O and containerd share: releases and RuntimeClasses."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from webhook.core.defects.versions import Version, parse_version

Json: TypeAlias = dict[str, Any]

_RELEASE = re.compile(r"v?\d+\.\d+(\.\d+)?([-+~].*)?", re.ASCII)


class UnsupportedError(ValueError):
    """The runtime does not support a setting. The message says what to do."""


class ImpossibleReleaseError(ValueError):
    """The text is not a release of the runtime."""


def parse_runtime_release(
    text: str, runtime: str, *, example: str, patch_matters: Collection[tuple[int, int]]
) -> Version:
    """Return the release in a text such as `example`, also with a prefix such as `cri-o://`.

    The text must include a patch number for the minors in `patch_matters`. Raises
    ImpossibleReleaseError for another text.
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
    """Return a RuntimeClass. With a node selector, its pods run only on matching nodes."""
    made: Json = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": handler,
    }
    if node_selector:
        made["scheduling"] = {"nodeSelector": dict(node_selector)}
    return made
