"""The results of `make start-gate` as text, as JSON and on the page of startGate.

`python -m bench.node.start_gate_report` writes the page again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path

from bench.node.start_gate_pods import EMPTY, NOTHING, Failures, Starts
from bench.report import fill_page
from bench.text_table import Cells, aligned_lines, markdown_rows

PAGE = Path(__file__).parents[2] / "docs" / "start-gate.md"
RESULTS = PAGE.with_suffix(".json")
MARKER = "start-gate"
MIN_JOBS, MIN_PODS = 20, 30
"""For figures that the page states. The confidence intervals assume that the mean is normal."""


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a run."""

    environment: Mapping[str, str]
    failures: tuple[Failures, ...]
    starts: tuple[Starts, ...]


def as_json(results: Results) -> str:
    """Return the content of the results file."""
    data = {
        "environment": dict(results.environment),
        "failures": [asdict(each) for each in results.failures],
        "starts": [
            {"kind": each.kind, "seconds": [round(value, 3) for value in each.seconds]}
            for each in results.starts
        ],
    }
    return json.dumps(data, indent=1) + "\n"


def from_json(text: str) -> Results:
    """Return the results in a results file."""
    data = json.loads(text)
    return Results(
        data["environment"],
        tuple(Failures(**each) for each in data["failures"]),
        tuple(Starts(each["kind"], tuple(each["seconds"])) for each in data["starts"]),
    )


def failure_table(results: Results) -> Cells:
    """Return a row for each late start, below a head."""
    return [
        ["what answers late", "Jobs", "failed without a gate", "failed with a gate"],
        *(
            [each.late, f"{each.jobs} and {each.jobs}", str(each.without), str(each.with_gate)]
            for each in results.failures
        ),
    ]


def price_table(results: Results) -> Cells:
    """Return a row for each kind of pods, below a head."""
    by_kind = {each.kind: each for each in results.starts}
    rows: Cells = [
        ["pod", "until the main container runs", "added", "beside an empty init container"]
    ]
    for each in results.starts:
        mean = f"{each.mean:.2f} s ({min(each.seconds):.2f}–{max(each.seconds):.2f})"
        added = "" if each.kind == NOTHING else _difference(each, by_kind[NOTHING])
        beside = "" if each.kind in (NOTHING, EMPTY) else _difference(each, by_kind[EMPTY])
        rows.append([each.kind, mean, added, beside])
    return rows


def _difference(one: Starts, other: Starts) -> str:
    added = one.minus(other)
    text = f"{added.mean:+z.2f} s"
    return text if isnan(added.margin) else f"{text} ± {added.margin:.2f}"


def as_text(results: Results) -> str:
    """Return the results for a terminal."""
    tables = (failure_table(results), price_table(results))
    return "\n\n".join("\n".join(aligned_lines(table)) for table in tables)


def as_markdown(results: Results) -> str:
    """Return the region of the page with the results."""
    facts = "; ".join(f"{name}: {value}" for name, value in results.environment.items())
    return "\n".join(
        [
            *markdown_rows(failure_table(results)),
            "",
            "If every target answers at once, a pod starts later. ± is the confidence interval",
            f"of 95 %, from {len(results.starts[0].seconds)} pairs of pods:",
            "",
            *markdown_rows(price_table(results)),
            "",
            f"Measured by `make start-gate`. {facts}.",
            "",
        ]
    )


def rendered(page: str, results: Results) -> str:
    """Return the page with the results."""
    return fill_page(page, as_markdown(results), MARKER)


def write_docs(results: Results) -> None:
    """Write the results file and the page."""
    RESULTS.write_text(as_json(results), encoding="utf-8")
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    write_docs(from_json(RESULTS.read_text(encoding="utf-8")))
