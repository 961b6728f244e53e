"""What a part of the benchmark found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bench.measurement import Measurement, Rows


@dataclass(slots=True)
class ReportTable:
    """A table: what was measured, and its figures."""

    name: str
    title: str
    rows: Rows = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def figure(self, row: str, column: str) -> Measurement:
        """One cell."""
        return self.rows[row][column]

    def as_json(self) -> dict[str, Any]:
        """For the results file."""
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
        """Of a results file."""
        rows = {
            row: {column: Measurement.from_json(measure) for column, measure in figures.items()}
            for row, figures in data["rows"].items()
        }
        return cls(name, data["title"], rows, data["notes"])
