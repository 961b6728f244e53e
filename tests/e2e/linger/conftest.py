"""The fixtures of tests that run the helper."""

from __future__ import annotations

from tests.support.linger_fixtures import linger

__all__ = ["linger"]
