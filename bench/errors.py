"""The error of the benchmark."""

from __future__ import annotations


class BenchError(Exception):
    """The benchmark could not measure reliably. The message contains the reason."""
