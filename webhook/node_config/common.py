"""Releases and RuntimeClasses, for both CRI-O and containerd."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from webhook.core.defects.versions import Version, parse_version

Json: TypeAlias = dict[str, Any]

_RELEASE = re.compile(r"v?\d+\.\d+(\.\d+)?([-+~].*)?", re.ASCII)


class UnsupportedError(ValueError):
    """The runtime does not support a setting. The message says what to do."""


class InvalidReleaseError(ValueError):
    """The text is not a release of the runtime."""


def parse_runtime_release(
    text: str, runtime: str, *, example: str, patch_matters: Collection[tuple[int, int]]
) -> Version:
    """Return the release in a text such as `example`, which may have a prefix such as `cri-o://`.

    For the minors in `patch_matters`, the text must include the patch number. Raises
    InvalidReleaseError if the text is not a release of the runtime.
    """
    name, separator, rest = text.rpartition("://")
    if separator and name != runtime:
        raise InvalidReleaseError(f"{text!r} is not a release of {runtime}")
    match, version = _RELEASE.fullmatch(rest), parse_version(rest)
    if match is None or version is None:
        raise InvalidReleaseError(f"{text!r} is not a version such as {example}")
    if match[1] is None and version[:2] in patch_matters:
        raise InvalidReleaseError(f"{rest} could be {version}: give the whole release")
    return version


def runtime_class_manifest(name: str, handler: str, node_selector: Mapping[str, str]) -> Json:
    """Return a RuntimeClass. If it has a node selector, its pods run only on matching nodes."""
    manifest: Json = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": handler,
    }
    if node_selector:
        manifest["scheduling"] = {"nodeSelector": dict(node_selector)}
    return manifest
