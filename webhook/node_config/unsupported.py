"""What a runtime cannot be told."""

from __future__ import annotations


class UnsupportedError(ValueError):
    """What the runtime cannot do, and what to do about it."""
