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
from tests.support.linger_fixtures import linger

__all__ = [
    "ca",
    "clock",
    "image",
    "linger",
    "lookup",
    "new_lookup",
    "registry",
    "trusting",
]
