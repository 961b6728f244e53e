"""A figure, round by round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import sub, truediv
from statistics import median
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one figure was in each round."""

    values: tuple[float, ...]
    unit: str = ""

    @property
    def median(self) -> float:
        """The figure to quote."""
        return median(self.values)

    @property
    def low(self) -> float:
        """In the round in which it was lowest."""
        return min(self.values)

    @property
    def high(self) -> float:
        """In the round in which it was highest."""
        return max(self.values)

    def ratio_to(self, other: Measurement) -> Measurement:
        """The ratio to another figure, round by round: both had the same minute of the machine."""
        return self._with(other, truediv, "×")

    def minus(self, other: Measurement) -> Measurement:
        """What it is beyond another figure, round by round."""
        return self._with(other, sub, self.unit)

    def as_json(self) -> dict[str, Any]:
        """For the results file."""
        return {"median": self.median, "low": self.low, "high": self.high,
                "unit": self.unit, "rounds": list(self.values)}  # fmt: skip

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Measurement:
        """Of a results file."""
        return cls(tuple(data["rounds"]), data["unit"])

    def _with(
        self, other: Measurement, combine: Callable[[float, float], float], unit: str
    ) -> Measurement:
        pairs = zip(self.values, other.values, strict=True)
        return Measurement(tuple(combine(mine, theirs) for mine, theirs in pairs), unit)


Rows: TypeAlias = dict[str, dict[str, Measurement]]
"""The figures of each row, by their names."""


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def to_measurements(
    rounds: Iterable[dict[str, float]], units: dict[str, str]
) -> dict[str, Measurement]:
    """One Measurement for each figure of the rounds."""
    found = list(rounds)
    return {
        name: Measurement(tuple(figures[name] for figures in found), unit)
        for name, unit in units.items()
    }


def concatenate_rounds(rounds: Sequence[Rows]) -> Rows:
    """Rows of several rounds, of rows that were measured round by round."""
    return {
        row: {
            name: Measurement(tuple(chain(*(each[row][name].values for each in rounds))), one.unit)
            for name, one in figures.items()
        }
        for row, figures in rounds[0].items()
    }
