"""Measured figures, with their values in each round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import sub, truediv
from statistics import median
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Measurement:
    """The values of one figure, one for each round."""

    values: tuple[float, ...]
    unit: str = ""

    @property
    def median(self) -> float:
        """The median over the rounds, which is the value to quote."""
        return median(self.values)

    @property
    def low(self) -> float:
        """The lowest value of all rounds."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The highest value of all rounds."""
        return max(self.values)

    def ratio_to(self, other: Measurement) -> Measurement:
        """Return the ratio to another figure in each round.

        Both figures of a round were measured within seconds, at the same speed of the machine.
        """
        return self._with(other, truediv, "×")

    def minus(self, other: Measurement) -> Measurement:
        """Return the difference to another figure in each round."""
        return self._with(other, sub, self.unit)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object for the results file."""
        return {"median": self.median, "low": self.low, "high": self.high,
                "unit": self.unit, "rounds": list(self.values)}  # fmt: skip

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Measurement:
        """Return the figure of a JSON object from a results file."""
        return cls(tuple(data["rounds"]), data["unit"])

    def _with(
        self, other: Measurement, combine: Callable[[float, float], float], unit: str
    ) -> Measurement:
        pairs = zip(self.values, other.values, strict=True)
        return Measurement(tuple(combine(value, other_value) for value, other_value in pairs), unit)


# The rows of a table: row name to column name to figure.
Rows: TypeAlias = dict[str, dict[str, Measurement]]


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value below which about `percent` percent of the values are."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def to_measurements(
    rounds: Iterable[dict[str, float]], units: dict[str, str]
) -> dict[str, Measurement]:
    """Return a Measurement for each figure in `units`, from the figures of each round."""
    results = list(rounds)
    return {
        name: Measurement(tuple(figures[name] for figures in results), unit)
        for name, unit in units.items()
    }


def concatenate_rounds(rounds: Sequence[Rows]) -> Rows:
    """Join the rows of separate rounds. Each figure then has the values of all rounds."""
    return {
        row: {
            column: Measurement(
                tuple(chain(*(rows[row][column].values for rows in rounds))), figure.unit
            )
            for column, figure in figures.items()
        }
        for row, figures in rounds[0].items()
    }
