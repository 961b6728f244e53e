"""The API server's limit on the size of all annotations of an object."""

from __future__ import annotations

from collections.abc import Mapping

_MAX_ANNOTATIONS_BYTES = 256 * 1024
"""Kubernetes `TotalAnnotationSizeLimitB`: the keys and values of all annotations together."""
_MAX_CHARACTER_BYTES = 4
"""The maximum number of bytes of one character in UTF-8."""


def annotations_fit(
    received: Mapping[str, str] | None, added: Mapping[str, str], added_characters: int
) -> bool:
    """Return whether the annotations stay below the limit after some are added or replaced.

    `added_characters` is the number of characters in all keys and values of `added`.
    """
    if not added:
        return True
    received = received or {}
    characters = added_characters + len("".join([*received, *received.values()]))
    return characters * _MAX_CHARACTER_BYTES <= _MAX_ANNOTATIONS_BYTES or _fits(
        {**received, **added}
    )


def _fits(annotations: Mapping[str, str]) -> bool:
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    return size <= _MAX_ANNOTATIONS_BYTES
