"""The fixtures of tests that run the helper."""

from __future__ import annotations

from tests.support.linger_fixtures import linger, machine, wrapper

__all__ = ["linger", "machine", "wrapper"]
