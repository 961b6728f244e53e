"""What keeps the benchmark from measuring."""

from __future__ import annotations


class BenchError(Exception):
    """Nothing was measured that could be trusted; the message says why."""


class MissingError(BenchError):
    """Something that the machine lacks; the message says how to get it."""
