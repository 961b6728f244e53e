"""What is wrong with an object or a file, in words for the person who wrote it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a file, worded for the person who wrote it."""

    source: str
    line: int
    message: str
    path: str = ""
    """The JSON path of the value, where the problem has one."""

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}" if self.line else self.source
        return ": ".join(part for part in (where, self.path, self.message) if part)
