"""The results of one part of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bench.measurement import Measurement, Rows


@dataclass(slots=True)
class ReportTable:
    """A table of figures, with a title and notes."""

    name: str
    title: str
    rows: Rows = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def figure(self, row: str, column: str) -> Measurement:
        """Return the figure in one cell. Raises KeyError if there is none."""
        return self.rows[row][column]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object for the results file."""
        return {
            "title": self.title,
            "rows": {
                name: {column: measure.as_json() for column, measure in figures.items()}
                for name, figures in self.rows.items()
            },
            "notes": self.notes,
        }

    @classmethod
    def from_json(cls, name: str, data: dict[str, Any]) -> ReportTable:
        """Return the table of a JSON object from a results file."""
        rows = {
            row: {column: Measurement.from_json(measure) for column, measure in figures.items()}
            for row, figures in data["rows"].items()
        }
        return cls(name, data["title"], rows, data["notes"])
