"""The command line of the benchmark: `python -m bench [PART…] [--short] [--against COMMIT]`."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from bench import against, core, end_to_end, footprint, growth, previews, report, throughput
from bench.environment import describe_environment
from bench.errors import BenchError
from bench.profiles import FULL, SHORT
from bench.report import as_json, as_text, from_json
from bench.report_table import ReportTable
from bench.results_chart import render_chart
from bench.run import Run
from bench.servers import THIS_CODE
from bench.text_table import aligned_lines
from tests.support.checkout import checked_out
from tools.build import BuildError

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
@click.option(
    "--against",
    "revision",
    metavar="COMMIT",
    help="Measure this commit beside another one. The exit code is 1 if a row is worse.",
)
def main(
    names: tuple[str, ...],
    short: bool,
    out: Path,
    results_file: Path | None,
    write_docs: bool,
    revision: str | None,
) -> None:
    """Measure podsettle's costs, and compare them with other servers. Without PART, run all
    parts."""
    if write_docs and (short or names):
        raise click.UsageError("--write-docs requires a full run of all parts")
    # SIGTERM raises SystemExit, so that the context managers stop the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    out.mkdir(parents=True, exist_ok=True)
    if revision:
        if names or results_file:
            raise click.UsageError("--against takes no PART and no --again")
        sys.exit(_compare(revision, short, out, write_docs))
    if results_file:
        parts, environment = from_json(results_file.read_text(encoding="utf-8"))
    else:
        try:
            parts, environment = _measure(names or tuple(PARTS), short)
        except (BenchError, BuildError) as error:
            raise click.ClickException(str(error)) from None
    click.echo(as_text(parts, environment, with_targets=not short))
    results = out / ("short.json" if short else "results.json")
    results.write_text(as_json(parts, environment), encoding="utf-8")
    results.with_suffix(".svg").write_text(render_chart(parts), encoding="utf-8")
    click.echo(f"written: {results}, {results.with_suffix('.svg')}")
    if write_docs:
        report.write_docs(_DOCS, parts, environment)
        (_DOCS / "performance.svg").write_text(render_chart(parts), encoding="utf-8")
        click.echo("written: docs/performance.md, docs/performance.svg")


def _compare(revision: str, short: bool, out: Path, write_docs: bool) -> bool:
    """Measure this commit beside another one. Return whether a row is worse."""
    environment = describe_environment()
    environment["commit"] += f" beside {revision}"
    try:
        with (
            checked_out(revision) as tree,
            tempfile.TemporaryDirectory(prefix="podsettle-bench-") as directory,
        ):
            against.compile_modules(THIS_CODE)
            run = Run(Path(directory), SHORT if short else FULL)
            part = against.measure(run, against.code_of(tree))
    except (BenchError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    click.echo("\n".join(aligned_lines(against.comparison_table(part))))
    results = out / f"{against.NAME}.json"
    results.write_text(as_json({part.name: part}, environment), encoding="utf-8")
    click.echo(f"written: {results}")
    if write_docs:
        report.write_comparison(_DOCS, part, environment)
    return any(map(against.is_worse, part.rows.values()))


def _measure(names: tuple[str, ...], short: bool) -> tuple[dict[str, ReportTable], dict[str, str]]:
    """Run the parts with these names. Return their tables, and the environment of the run."""
    # The load average must be read before the benchmark itself loads the machine.
    environment = describe_environment()
    against.compile_modules(THIS_CODE)
    with tempfile.TemporaryDirectory(prefix="podsettle-bench-") as directory:
        run = Run(Path(directory), SHORT if short else FULL)
        return {name: PARTS[name](run) for name in PARTS if name in names}, environment


if __name__ == "__main__":
    main(prog_name="python -m bench")
