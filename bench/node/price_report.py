"""The results of `make price` as text, as JSON and on the pages that state prices.

The page of postInitSleep has the table. Each page also states ranges, for example
`<!-- price Shell -->0.4 to 1.9 s<!-- end -->`. `python -m bench.node.price_report` writes all pages
again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.node.price_pods import COUNTS, GATE, Difference, Starts
from bench.report import fill_page
from bench.text_table import Cells, aligned_lines, markdown_rows
from race.cells import Condition, Delivery, Kind, Provocation

_ROOT = Path(__file__).parents[2]
PAGE = _ROOT / "docs" / "post-init-sleep.md"
RESULTS = PAGE.with_suffix(".json")
PAGES = (
    PAGE,
    _ROOT / "README.md",
    _ROOT / "docs" / "limits.md",
    _ROOT / "docs" / "adr" / "0007-image-volume-or-copy.md",
    _ROOT / "docs" / "reports" / "tekton-exit-255.md",
)
MARKER = "price"
MIN_PODS = 10
"""Of each kind, for figures that pages state."""

_RANGE = re.compile(rf"(<!-- {MARKER} ([a-zA-Z-]+) -->)[^<]*(<!-- end -->)")
_GATES = {"before": False, "after": True}
# A shorter time is less than the error of any figure here.
_SHORTEST_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Prices:
    """The results of a run."""

    environment: Mapping[str, str]
    starts: tuple[Starts, ...]

    def added(self, starts: Starts) -> list[Difference]:
        """Return the differences to the unwrapped pods on the same kubelet, for each count."""
        base = next(
            each
            for each in self.starts
            if each.on_demand is starts.on_demand and not each.condition.is_wrapped
        )
        return [starts.minus(base, count) for count in COUNTS]

    def range_of(self, name: str) -> str:
        """Return the range of what the default lifetime adds, such as `0.4 to 1.9 s`.

        The name is that of a delivery, or `before` or `after` for kubelets.
        """
        found = [
            difference.seconds
            for each in self.starts
            if each.condition.is_default
            and (each.on_demand is _GATES.get(name) or each.condition.delivery == name)
            for difference in self.added(each)
        ]
        low, high = min(found), max(found)
        if low < _SHORTEST_SECONDS:
            return f"up to {max(high, 0):.1f} s"
        return f"{low:.1f} to {high:.1f} s"


def as_json(prices: Prices) -> str:
    """Return the content of the results file."""
    rows: list[dict[str, Any]] = [
        {
            "gate": starts.on_demand,
            "delivery": starts.condition.delivery,
            "lifetime ms": starts.condition.lifetime_ms,
            **{
                _key(count): [round(value, 3) for value in values]
                for count, values in starts.seconds.items()
            },
        }
        for starts in prices.starts
    ]
    data = {"environment": dict(prices.environment), "starts": rows}
    return json.dumps(data, indent=1) + "\n"


def from_json(text: str) -> Prices:
    """Return the results in a results file."""
    data = json.loads(text)
    return Prices(
        data["environment"],
        tuple(
            Starts(
                row["gate"],
                Condition(
                    Provocation.NATURAL, Delivery(row["delivery"]), row["lifetime ms"], Kind.INIT
                ),
                {count: tuple(row[_key(count)]) for count in COUNTS},
            )
            for row in data["starts"]
        ),
    )


def _key(count: int) -> str:
    return f"seconds with {count}"


def table(prices: Prices) -> Cells:
    """Return a row for each kind of pods, below a head."""
    pairs = ((_counted(count), "added") for count in COUNTS)
    rows: Cells = [
        ["kubelet", "delivery", "`minLifetime`", *(cell for pair in pairs for cell in pair)]
    ]
    for starts in prices.starts:
        wrapped = starts.condition.is_wrapped
        row = [
            "from 1.36 on" if starts.on_demand else "before 1.36",
            f"`{starts.condition.delivery}`" if wrapped else "not wrapped",
            f"{starts.condition.lifetime_ms} ms" if wrapped else "",
        ]
        for count, difference in zip(COUNTS, prices.added(starts), strict=True):
            row += [_times(starts.seconds[count]), _increase(difference) if wrapped else ""]
        rows.append(row)
    return rows


def _counted(count: int) -> str:
    return "1 init container" if count == 1 else f"{count} init containers"


def _times(values: tuple[float, ...]) -> str:
    return f"{fmean(values):.2f} s ({min(values):.2f}–{max(values):.2f})"


def _increase(difference: Difference) -> str:
    error = difference.standard_error
    return f"{difference.seconds:+.2f} s" + ("" if isnan(error) else f" ± {error:.2f}")


def as_text(prices: Prices) -> str:
    """Return the table for a terminal."""
    return "\n".join(["", *aligned_lines(table(prices)), ""])


def as_markdown(prices: Prices) -> str:
    """Return the section of the page."""
    return "\n".join([*_section(prices), ""])


def _section(prices: Prices) -> Iterator[str]:
    details = ", ".join(f"{name} {value}" for name, value in prices.environment.items())
    pods = min(len(values) for each in prices.starts for values in each.seconds.values())
    yield f"Measured with `make price`: {details}."
    yield ""
    yield (
        f"{pods} pods of each kind: the mean and, in parentheses, the range. *Added* is the "
        "difference to the mean of the unwrapped pods, with its standard error. *Before 1.36* is "
        f"the same kubelet with `{GATE}: false`."
    )
    yield ""
    yield from markdown_rows(table(prices))


def rendered(prices: Prices) -> dict[Path, str]:
    """Return the content of each page."""
    texts = {path: path.read_text(encoding="utf-8") for path in PAGES}
    texts[PAGE] = fill_page(texts[PAGE], as_markdown(prices), MARKER)
    return {
        path: _RANGE.sub(lambda found: f"{found[1]}{prices.range_of(found[2])}{found[3]}", text)
        for path, text in texts.items()
    }


def write_docs(prices: Prices) -> None:
    """Keep the results, and write them to the pages."""
    RESULTS.write_text(as_json(prices), encoding="utf-8")
    for path, text in rendered(prices).items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_docs(from_json(RESULTS.read_text(encoding="utf-8")))
