"""The error of the reproducer."""

from __future__ import annotations


class RaceError(Exception):
    """The experiment cannot go on. The message says why."""
