"""The command line of `make start-gate`: Jobs that start too early, and what the gate costs.

On a real node, an agent, a network policy and DNS answer late. Jobs whose program does not retry
then fail. The same Jobs with a gate wait. In a second part everything answers at once, and the time
from a pod's creation until its main container runs shows the price of the gate.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from bench.environment import describe_environment
from bench.errors import BenchError
from bench.node.start_gate_pods import JOBS_AT_ONCE, PODS_AT_ONCE, measure
from bench.node.start_gate_report import (
    MIN_JOBS,
    MIN_PODS,
    Results,
    as_json,
    as_text,
    write_docs,
)
from tests.support.node.images import ImageBuildError
from tools.build import BuildError

_FACTS = ("commit", "date", "processor", "memory", "system", "load average before", "Kubernetes")


@click.command()
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help=f"Jobs of each kind. Figures of fewer than {MIN_JOBS} are not written to the page.",
)
@click.option(
    "--pods",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help=f"Pods of each kind. Figures of fewer than {MIN_PODS} are not written to the page.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("dist/start-gate"),
    show_default=True,
    help="Directory for results.json.",
)
@click.option("--write-docs", "writes_docs", is_flag=True, help="Write the results to the page.")
def main(jobs: int, pods: int, out: Path, writes_docs: bool) -> None:
    """Count the Jobs that fail without and with startGate, and measure its price."""
    if writes_docs and (jobs < MIN_JOBS or pods < MIN_PODS):
        raise click.UsageError(
            f"--write-docs requires --jobs {MIN_JOBS} or more and --pods {MIN_PODS} or more"
        )
    # SIGTERM raises SystemExit, so that the context managers stop the node.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # The load average must be read before the node loads the machine.
    known = describe_environment()
    facts = {name: known[name] for name in _FACTS}
    facts |= {"Jobs at the same time": str(JOBS_AT_ONCE), "pods": str(PODS_AT_ONCE)}
    try:
        failures, starts = measure(jobs, pods, lambda line: click.echo(line, err=True))
    except (BenchError, BuildError, ImageBuildError) as error:
        raise click.ClickException(str(error)) from None
    results = Results(facts, tuple(failures), tuple(starts))
    click.echo(as_text(results))
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(as_json(results), encoding="utf-8")
    click.echo(f"written: {out}/results.json")
    if writes_docs:
        write_docs(results)


if __name__ == "__main__":
    main(prog_name="python -m bench.node.start_gate")
