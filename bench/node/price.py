"""The command line of `make price`: what postInitSleep adds to a pod's start, on a real node.

The kubelet sees the end of an init container at its next relist, once a second. From Kubernetes
1.36 on (`PLEGOnDemandRelist`) it sees the end at once if the container has ended when its start
returns. So a wrapper can cost nothing, its own lifetime, or a whole relist. This measures the time
from a pod's creation until its main container runs, for pods with one and with three init
containers, and compares it with that of unwrapped pods.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

import click

from bench.environment import describe_environment
from bench.errors import BenchError
from bench.node.price_pods import AT_ONCE, measure
from bench.node.price_report import MIN_PODS, Prices, as_json, as_text, write_docs
from race.errors import RaceError
from tests.support.node.images import ImageBuildError
from tools.build import BuildError
from tools.crio import AFFECTED

_FACTS = ("commit", "date", "processor", "memory", "system", "load average before", "Kubernetes")


@click.command()
@click.option(
    "--pods",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help=f"Pods of each kind. Figures of fewer than {MIN_PODS} are not written to the pages.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("dist/price"),
    show_default=True,
    help="Directory for results.json.",
)
@click.option("--write-docs", "writes_docs", is_flag=True, help="Write the results to the pages.")
def main(pods: int, out: Path, writes_docs: bool) -> None:
    """Measure what each delivery and lifetime of postInitSleep adds to a pod's start."""
    if writes_docs and pods < MIN_PODS:
        raise click.UsageError(f"--write-docs requires --pods {MIN_PODS} or more")
    # SIGTERM raises SystemExit, so that the context managers stop the node.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # The load average must be read before the node loads the machine.
    known = describe_environment()
    facts = {name: known[name] for name in _FACTS}
    facts |= {"CRI-O": AFFECTED.removeprefix("v"), "pods at the same time": str(AT_ONCE)}
    try:
        with tempfile.TemporaryDirectory(prefix="podsettle-price-") as directory:
            starts = measure(pods, Path(directory), lambda line: click.echo(line, err=True))
    except (BenchError, BuildError, ImageBuildError, RaceError) as error:
        raise click.ClickException(str(error)) from None
    prices = Prices(facts, tuple(starts))
    click.echo(as_text(prices))
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(as_json(prices), encoding="utf-8")
    click.echo(f"written: {out}/results.json")
    if writes_docs:
        write_docs(prices)


if __name__ == "__main__":
    main(prog_name="python -m bench.node.price")
