"""The command line of `make umount`: pods that hang in slow umounts, and settled pods that do not.

It provokes the public report "containerd init container stuck in Running" on real nodes whose disks
are slow, with the newest and the oldest release line of containerd: containerd does not record the
end of an init container while the umount of its root filesystem writes to the disk. Of two nodes
one has the configuration of `podsettle node-config containerd --volatile`, and podsettle's policy
sends pods there.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from bench.errors import BenchError
from bench.node import umount_report
from bench.node.umount_tables import FULL, SHORT, measure
from tests.support.node.write_limit import LimitError
from tools.build import BuildError


@click.command()
@click.option("--short", is_flag=True, help="One release of containerd, and a pod of each kind.")
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
    """Measure how long pods hang in umounts on a slow disk, unsettled and settled.

    The exit code is 1 if unsettled pods do not hang, if they hang without the defect, or if settled
    pods hang.
    """
    if write_docs and short:
        raise click.UsageError("--write-docs requires a full run")
    # SIGTERM raises SystemExit, so that the context managers stop the nodes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if results_file:
        table, environment = umount_report.from_json(results_file.read_text(encoding="utf-8"))
    else:
        try:
            table, environment = measure(SHORT if short else FULL)
        except (BenchError, BuildError, LimitError) as error:
            raise click.ClickException(str(error)) from None
    click.echo(umount_report.as_text(table))
    out.mkdir(parents=True, exist_ok=True)
    results = out / ("short.json" if short else "results.json")
    results.write_text(umount_report.as_json(table, environment), encoding="utf-8")
    results.with_suffix(".svg").write_text(umount_report.render_chart(table), encoding="utf-8")
    click.echo(f"written: {results}, {results.with_suffix('.svg')}")
    if missing := umount_report.unproven(table):
        raise click.ClickException("; ".join(missing))
    if write_docs:
        written = umount_report.write_docs(table, environment)
        click.echo(f"written: {', '.join(path.name for path in written)} in docs/reports")


if __name__ == "__main__":
    main(prog_name="python -m bench.node.umount")
