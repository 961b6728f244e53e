"""The command line of `make selinux`: CRI-O's relabelling in a virtual machine with SELinux.

It measures the public report "CreateContainerError - Openshift Error": CRI-O visits every file of a
volume at each start of a container. CRI-O has the configuration of `podsettle node-config crio
--selinux`, and gets the sandboxes and containers that a kubelet makes of pods settled by podsettle.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import click

from bench.environment import describe_environment
from bench.errors import BenchError
from bench.node import selinux_report
from bench.node.selinux_cases import Case, run_cases
from bench.node.selinux_node import DEFAULT_HANDLER, CrioNode
from bench.node.selinux_starts import Profile, measure
from bench.report_table import ReportTable
from tests.support.node_config import selinux_drop_in
from tests.support.vm.image import RELEASES, SIZES
from tests.support.vm.machine import MachineError, selinux_machine
from tools.crio import AFFECTED

_FULL = Profile(sizes=SIZES, later_starts=5)
_SHORT = Profile(sizes=(min(SIZES), max(SIZES)), later_starts=2)
_FACTS = ("commit", "date", "processor", "memory", "system", "load average before")


@click.command()
@click.option(
    "--machine",
    "image",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="What `python -m tests.support.vm.image` prints.",
)
@click.option("--short", is_flag=True, help="One release of CRI-O, and fewer starts.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("dist/selinux"),
    show_default=True,
    help="Directory for results.json.",
)
@click.option(
    "--again",
    "results_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Show the results of this file, without measuring.",
)
@click.option("--write-docs", is_flag=True, help="Write the results to the page of the report.")
def main(
    image: Path | None, short: bool, out: Path, results_file: Path | None, write_docs: bool
) -> None:
    """Measure starts of containers with large volumes, unsettled and settled.

    The exit code is 1 if the time of settled containers grows with the number of files, if that of
    unsettled ones does not, or if a pod skips the relabelling against the documentation.
    """
    if write_docs and short:
        raise click.UsageError("--write-docs requires a full run")
    # SIGTERM raises SystemExit, so that the context managers end the machine.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if results_file:
        text = results_file.read_text(encoding="utf-8")
        table, cases, environment = selinux_report.from_json(text)
    elif image:
        try:
            table, cases, environment = _measure(image, short)
        except (BenchError, MachineError) as error:
            raise click.ClickException(str(error)) from None
    else:
        raise click.UsageError("give --machine or --again")
    click.echo(selinux_report.as_text(table, cases))
    out.mkdir(parents=True, exist_ok=True)
    results = out / ("short.json" if short else "results.json")
    results.write_text(selinux_report.as_json(table, cases, environment), encoding="utf-8")
    click.echo(f"written: {results}")
    if missing := selinux_report.unproven(table, cases):
        raise click.ClickException("; ".join(missing))
    if write_docs:
        written = selinux_report.write_docs(table, cases, environment)
        click.echo(f"written: {', '.join(path.name for path in written)} in docs/reports")


def _measure(image: Path, short: bool) -> tuple[ReportTable, list[Case], dict[str, str]]:
    # The load average must be read before the machine loads the host.
    facts = describe_environment()
    environment = {key: facts[key] for key in _FACTS}
    with tempfile.TemporaryDirectory() as directory, selinux_machine(image) as machine:
        node = CrioNode(machine)
        version = node.restart(AFFECTED, selinux_drop_in(DEFAULT_HANDLER, "--oldest", AFFECTED))
        if not version.startswith("cri-o "):
            raise BenchError(f"CRI-O {AFFECTED} does not start: {version}")
        table = measure(node, _SHORT if short else _FULL, Path(directory))
        releases = (AFFECTED,) if short else RELEASES
        cases = list(run_cases(node, releases, Path(directory)))
        environment |= node.describe()
    environment["load average after"] = f"{os.getloadavg()[0]:.2f}"
    environment["CRI-O"] = ", ".join(release.removeprefix("v") for release in releases)
    return table, cases, environment


if __name__ == "__main__":
    main(prog_name="python -m bench.node.selinux")
