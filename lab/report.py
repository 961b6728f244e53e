"""What the experiments share: their command line, tables and statistics."""

from __future__ import annotations

import functools
import json
import math
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist, fmean, median, stdev
from typing import Any

import click
import rich.box
import rich.table
from rich.console import Console

from bench.environment import describe_environment
from tests.support.node.images import ImageBuildError
from tests.support.node.write_limit import LimitError
from tests.support.vm.machine import MachineError
from tools.build import BuildError

Json = dict[str, Any]

# Wider than any table: what is printed can be pasted into a page.
_WIDTH = 1_000


class LabError(Exception):
    """The experiment cannot go on. The message says why."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: as tables show it, and with everything that it is made of."""

    text: str
    data: Json


def values(
    found: Sequence[float], unit: str = "", center: Callable[[Sequence[float]], float] = median
) -> Figure:
    """Return the middle and the range of values. Without a unit they are numbers of things."""
    form = ",.2f" if unit else ",.0f"
    text = f"{center(found):{form}} {unit}".rstrip()
    if len(found) > 1:
        text += f" ({min(found):{form}}–{max(found):{form}})"
    return Figure(text, {center.__name__: center(found), "unit": unit, "values": list(found)})


def added(found: Sequence[float], base: Sequence[float]) -> Figure:
    """Return the mean difference of two series of seconds, whose values of a round are a pair.

    Its margin is half of the confidence interval of 95 %. One pair has none.
    """
    pairs = [one - other for one, other in zip(found, base, strict=True)]
    text, data = f"{fmean(pairs):+z.2f} s", {"mean": fmean(pairs), "unit": "s"}
    if len(pairs) > 1:
        margin = NormalDist().inv_cdf(0.975) * stdev(pairs) / math.sqrt(len(pairs))
        text, data = f"{text} ± {margin:.2f}", {**data, "margin": margin}
    return Figure(text, data)


def rate(hits: int, trials: int) -> Figure:
    """Return how many of some trials are hits, with one-sided bounds of 95 % of their rate."""
    if not trials:
        return Figure("0 of 0", {"hits": 0, "of": 0})
    low, high = 1 - upper_bound(trials - hits, trials), upper_bound(hits, trials)
    text = f"{hits} of {trials:,} ({low:.2%} to {high:.2%})"
    return Figure(text, {"hits": hits, "of": trials, "one-sided 95 % bounds": [low, high]})


def upper_bound(hits: int, trials: int) -> float:
    """Return the upper bound of a rate, one-sided and exact (Clopper and Pearson), at 95 %."""
    if not 0 <= hits <= trials or trials == 0:
        raise ValueError(f"{hits} of {trials} is no rate")
    if hits == trials:
        return 1.0
    log_trials = math.lgamma(trials + 1)
    ways = [log_trials - math.lgamma(k + 1) - math.lgamma(trials - k + 1) for k in range(hits + 1)]
    low, high = 0.0, 1.0
    # More halvings than a float has digits.
    for _ in range(60):
        rate = (low + high) / 2
        terms = (
            math.exp(way + k * math.log(rate) + (trials - k) * math.log1p(-rate))
            for k, way in enumerate(ways)
        )
        low, high = (rate, high) if math.fsum(terms) >= 0.05 else (low, rate)
    return low


Row = dict[str, Figure | str]
"""The cells of a row by their columns."""


@dataclass(slots=True)
class Table:
    """A table with a title."""

    title: str
    rows: list[Row] = field(default_factory=list)

    def show(self, console: Console) -> None:
        """Print the title, and the table as a page in Markdown has it."""
        columns = list(dict.fromkeys(column for row in self.rows for column in row))
        shown = rich.table.Table(*columns, box=rich.box.MARKDOWN)
        for row in self.rows:
            cells = (row.get(column, "") for column in columns)
            shown.add_row(*(each.text if isinstance(each, Figure) else each for each in cells))
        console.print(f"\n{self.title}\n")
        console.print(shown)

    def as_json(self) -> Json:
        """Return the table with all values of its figures."""
        rows = [
            {name: cell.data if isinstance(cell, Figure) else cell for name, cell in row.items()}
            for row in self.rows
        ]
        return {"title": self.title, "rows": rows}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an experiment measured."""

    tables: Sequence[Table]
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further facts that a reader of the figures needs, such as versions."""
    unproven: Sequence[str] = ()
    """What the figures had to show and do not. The command then fails."""


def experiment(run: Callable[..., Outcome]) -> Callable[..., None]:
    """Return the body of a command that runs an experiment and prints what it measured."""

    @click.option(
        "--json",
        "file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Also write the figures, with all values, to this file.",
    )
    @functools.wraps(run)
    def command(file: Path | None, **options: Any) -> None:
        # SIGTERM raises SystemExit, so that the context managers stop the node.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        # The load average must be read before the node loads the machine.
        facts = _environment(options)
        try:
            outcome = run(**options)
        except (LabError, BuildError, ImageBuildError, LimitError, MachineError) as error:
            raise click.ClickException(str(error)) from None
        facts |= outcome.facts
        console = Console(width=_WIDTH, markup=False, highlight=False)
        console.print(", ".join(f"{name} {value}" for name, value in facts.items()))
        for table in outcome.tables:
            table.show(console)
        if file:
            results = {"environment": facts, "tables": [each.as_json() for each in outcome.tables]}
            text = json.dumps(results, indent=1, ensure_ascii=False)
            file.write_text(f"{text}\n", encoding="utf-8")
        if outcome.unproven:
            raise click.ClickException("; ".join(outcome.unproven))

    return command


def _environment(options: Mapping[str, object]) -> dict[str, str]:
    """Return the facts that a reader needs beside the figures. They do not name the machine."""
    # A path may name the machine's user.
    given = (f"{name}={value}" for name, value in options.items() if not isinstance(value, Path))
    return {**describe_environment("lab"), "options": " ".join(given) or "none"}
