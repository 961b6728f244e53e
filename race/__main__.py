"""The command line of the reproducer: `python -m race`, inside a real node's namespaces."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

import click

from race.cells import FULL, Plan
from race.environment import describe_run
from race.errors import RaceError
from race.experiment import Settings, run_on
from race.nodes import ContainerdSubject, CrioSubject, Subject
from race.pages import write_pages
from race.plot import render_chart
from race.report import as_text
from race.results import Results, RuntimeResult, as_json
from race.targets import evaluate_targets, exit_code
from tests.support.node.images import ImageBuildError, NodeImages, directory
from tools.build import CONTAINERD, BuildError
from tools.crio import AFFECTED, FIXED


@click.command()
@click.option(
    "--crio",
    "revisions",
    multiple=True,
    default=(AFFECTED, FIXED),
    show_default=True,
    help="A revision of CRI-O. The first one gets all cells, and the others the controls.",
)
@click.option(
    "--containerd",
    "lines",
    multiple=True,
    type=click.Choice([*CONTAINERD, "none"]),
    default=("2.4",),
    show_default=True,
    help="A release line of containerd.",
)
@click.option("--without-podsettle", is_flag=True, help="Leave out the wrapped containers.")
@click.option(
    "--share",
    type=click.FloatRange(0.0, 100.0, min_open=True),
    default=1.0,
    show_default=True,
    help="The share of a full run's containers, such as 0.02 to see that it works. Targets are "
    "judged from 1 on.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(1, 100),
    default=15,
    show_default=True,
    help="Pods at the same time.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0.0, 24 * 60.0, min_open=True),
    default=30.0,
    show_default=True,
    help="The longest time for a runtime.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("dist/race"),
    show_default=True,
    help="Directory for results.json and results.svg.",
)
@click.option("--write-docs", is_flag=True, help="Keep the results, and write them to the pages.")
def main(
    revisions: tuple[str, ...],
    lines: tuple[str, ...],
    without_podsettle: bool,
    share: float,
    in_flight: int,
    minutes: float,
    out: Path,
    write_docs: bool,
) -> None:
    """Provoke CRI-O's lost exit codes, and count them.

    The exit code is 1 if a target is missed or not measured.
    """
    # SIGTERM raises SystemExit, so that the context managers stop the node.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if write_docs and share < 1:
        raise click.UsageError("--write-docs needs a full run: --share is below 1")
    if write_docs and without_podsettle:
        raise click.UsageError("--write-docs needs a full run: --without-podsettle is given")
    plan = FULL.without_podsettle() if without_podsettle else FULL
    subjects: list[Subject] = [
        *map(CrioSubject, revisions),
        *(ContainerdSubject(line) for line in lines if line != "none"),
    ]
    environment = describe_run(_options(revisions, lines, without_podsettle, share, in_flight))
    settings = Settings(in_flight, minutes * 60)
    try:
        measured = _measure(subjects, plan.scaled(share) if share != 1 else plan, settings)
    except (RaceError, BuildError, ImageBuildError) as error:
        raise click.ClickException(str(error)) from None
    results = Results(environment, tuple(measured), without_podsettle)
    # A part of the containers is too few for the bounds that the targets ask for.
    judged = share >= 1
    click.echo(as_text(results, with_targets=judged))
    if not judged:
        click.echo("the targets are not judged: --share is below 1")
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(as_json(results), encoding="utf-8")
    (out / "results.svg").write_text(render_chart(results), encoding="utf-8")
    click.echo(f"written: {out}/results.json, {out}/results.svg")
    if write_docs:
        write_pages(results)
    if judged:
        sys.exit(exit_code(evaluate_targets(results)))


def _measure(subjects: list[Subject], plan: Plan, settings: Settings) -> list[RuntimeResult]:
    """Run the plan on a node for each runtime, one after the other."""
    results = []
    images = NodeImages.of(directory(_announce))
    with tempfile.TemporaryDirectory(prefix="podsettle-race-") as scratch:
        for number, subject in enumerate(subjects):
            _announce(f"{subject}: starting a node")
            home = Path(scratch) / str(number)
            home.mkdir()
            with subject.start(home, images) as (node, provoked):
                cells = plan.affected if number == 0 else plan.other
                commit = subject.commit()
                results.append(run_on(node, commit, provoked, cells, settings, _announce))
    return results


def _options(
    revisions: tuple[str, ...],
    lines: tuple[str, ...],
    without_podsettle: bool,
    share: float,
    in_flight: int,
) -> str:
    """Return the options that repeat the run."""
    parts = [
        *(f"--crio {revision}" for revision in revisions),
        *(f"--containerd {line}" for line in lines),
        *(["--without-podsettle"] if without_podsettle else []),
        f"--share {share:g}",
        f"--in-flight {in_flight}",
    ]
    return " ".join(parts)


def _announce(line: str) -> None:
    click.echo(line, err=True)


if __name__ == "__main__":
    main(prog_name="python -m race")
