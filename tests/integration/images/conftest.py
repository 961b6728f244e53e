"""The fixtures of image look-ups at real registries."""

from __future__ import annotations

from tests.support.image_fixtures import (
    ca,
    clock,
    image,
    lookup,
    new_lookup,
    registry,
    trusting,
)

__all__ = [
    "ca",
    "clock",
    "image",
    "lookup",
    "new_lookup",
    "registry",
    "trusting",
]
