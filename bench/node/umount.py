"""The command line of `make umount`: umount times of init containers on a real node.

It measures the public report "containerd init container stuck in Running": the time that the shim
needs to unmount an init container's root filesystem, and the gap until the next container starts.
Both are measured with and without `volatile`, on each major release of containerd, with an idle
disk, with a disk under fsync load, and with the report's own delay of each umount2 call.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

import click

from bench.errors import BenchError
from bench.node import umount_report
from bench.node.umount_tables import FULL, SHORT, measure
from tests.support.kube.build import BuildError


@click.command()
@click.option("--short", is_flag=True, help="Only check that it runs. The figures mean nothing.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("dist/umount"),
    show_default=True,
    help="Directory for results.json and results.svg.",
)
@click.option(
    "--again",
    "results_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Show the results of this file, without measuring.",
)
@click.option("--write-docs", is_flag=True, help="Write the results to the page of the report.")
def main(short: bool, out: Path, results_file: Path | None, write_docs: bool) -> None:
    """Measure umount times of init containers with and without volatile mounts."""
    if write_docs and short:
        raise click.UsageError("--write-docs requires a full run")
    # SIGTERM raises SystemExit, so that the context managers stop the node.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if results_file:
        tables, environment = umount_report.from_json(results_file.read_text(encoding="utf-8"))
    else:
        try:
            with tempfile.TemporaryDirectory(prefix="podsettle-umount-") as directory:
                tables, environment = measure(SHORT if short else FULL, Path(directory))
        except (BenchError, BuildError) as error:
            raise click.ClickException(str(error)) from None
    click.echo(umount_report.as_text(tables))
    if short:
        click.echo("A short run: the figures mean nothing.")
    out.mkdir(parents=True, exist_ok=True)
    results = out / ("short.json" if short else "results.json")
    results.write_text(umount_report.as_json(tables, environment), encoding="utf-8")
    results.with_suffix(".svg").write_text(umount_report.render_chart(tables), encoding="utf-8")
    click.echo(f"written: {results}, {results.with_suffix('.svg')}")
    if write_docs:
        written = umount_report.write_docs(tables, environment)
        click.echo(f"written: {', '.join(path.name for path in written)} in docs/reports")


if __name__ == "__main__":
    main(prog_name="python -m bench.node.umount")
