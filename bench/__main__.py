"""The command line of the benchmark: `python -m bench [PART…] [--short]`."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from bench import core, end_to_end, footprint, growth, previews, report, throughput
from bench.environment import describe_environment
from bench.errors import BenchError
from bench.profiles import FULL, SHORT
from bench.report import as_json, as_text, from_json
from bench.report_table import ReportTable
from bench.results_chart import render_chart
from bench.run import Run
from tests.support.kube.build import BuildError

PARTS: dict[str, Callable[[Run], ReportTable]] = {
    throughput.NAME: throughput.measure,
    end_to_end.NAME: end_to_end.measure,
    growth.NAME: growth.measure,
    previews.NAME: previews.measure,
    footprint.NAME: footprint.measure,
    core.NAME: core.measure,
}
_DOCS = Path(__file__).parents[1] / "docs"


@click.command()
@click.argument("names", metavar="[PART]...", nargs=-1, type=click.Choice(list(PARTS)))
@click.option(
    "--short", is_flag=True, help="Only check that the benchmark runs. The figures mean nothing."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("dist/bench"),
    show_default=True,
    help="Directory for results.json and results.svg.",
)
@click.option(
    "--again",
    "results_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Show the results of this file, without measuring.",
)
@click.option("--write-docs", is_flag=True, help="Write docs/performance.md and its chart.")
def main(
    names: tuple[str, ...], short: bool, out: Path, results_file: Path | None, write_docs: bool
) -> None:
    """Measure podsettle's costs, and compare them with other servers. Without PART, run all
    parts."""
    if write_docs and (short or names):
        raise click.UsageError("--write-docs requires a full run of all parts")
    # SIGTERM raises SystemExit, so that the context managers stop the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if results_file:
        parts, environment = from_json(results_file.read_text(encoding="utf-8"))
    else:
        try:
            parts, environment = _measure(names or tuple(PARTS), short)
        except (BenchError, BuildError) as error:
            raise click.ClickException(str(error)) from None
    click.echo(as_text(parts, environment, with_targets=not short))
    out.mkdir(parents=True, exist_ok=True)
    results = out / ("short.json" if short else "results.json")
    results.write_text(as_json(parts, environment), encoding="utf-8")
    results.with_suffix(".svg").write_text(render_chart(parts), encoding="utf-8")
    click.echo(f"written: {results}, {results.with_suffix('.svg')}")
    if write_docs:
        report.write_docs(_DOCS, parts, environment)
        (_DOCS / "performance.svg").write_text(render_chart(parts), encoding="utf-8")
        click.echo("written: docs/performance.md, docs/performance.svg")


def _measure(names: tuple[str, ...], short: bool) -> tuple[dict[str, ReportTable], dict[str, str]]:
    """Run the parts with these names. Return their tables, and the environment of the run."""
    # The load average must be read before the benchmark itself loads the machine.
    environment = describe_environment()
    with tempfile.TemporaryDirectory(prefix="podsettle-bench-") as directory:
        run = Run(Path(directory), SHORT if short else FULL)
        return {name: PARTS[name](run) for name in PARTS if name in names}, environment


if __name__ == "__main__":
    main(prog_name="python -m bench")
