"""The fixtures of image look-ups that need no registry."""

from __future__ import annotations

from tests.support.image_fixtures import (
    ca,
    clock,
    lookup,
    new_lookup,
    trusting,
)

__all__ = [
    "ca",
    "clock",
    "lookup",
    "new_lookup",
    "trusting",
]
