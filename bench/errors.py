"""Errors of the benchmark."""

from __future__ import annotations


class BenchError(Exception):
    """The benchmark could not measure reliably. The message contains the reason."""


class MissingError(BenchError):
    """The machine lacks a program or a resource. The message says what to do."""
