"""How far a list or a text is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

OnProgress: TypeAlias = Callable[[str, int, int | None], object]
"""A function that gets what is read, how much of it was read, and its length if that is known."""
