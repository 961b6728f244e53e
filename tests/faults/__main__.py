"""The command line of the faults: `python -m tests.faults --only sigkill`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import click
from rich.console import Console
from rich.table import Table

from tests.faults import scenarios as scenarios
from tests.faults.result import Result
from tests.faults.rig import FailurePolicy, run
from tests.faults.scenario import SCENARIOS


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(SCENARIOS)), help="A scenario.")
@click.option("--short", is_flag=True, help="Only some scenarios, for a nightly run.")
def main(only: Sequence[str], short: bool) -> None:
    """Make faults around podsettle while pods are created, and fail if pods are lost."""
    results: list[Result] = []
    for each in SCENARIOS.values():
        if (only and each.name not in only) or (short and not each.is_short):
            continue
        for policy in get_args(FailurePolicy):
            results.append(run(each, policy))
            click.echo(_text(results[-1]))
    Console(width=120).print(_table(results))
    if bad := [f"{each.fault} with {each.policy}" for each in results if each.is_bad]:
        raise click.ClickException(f"lost more than the fault explains: {', '.join(bad)}")


def _table(results: Sequence[Result]) -> Table:
    table = Table(box=None)
    for head in ("fault", "policy", "pods", "not settled", "refused", "explained", "normal after"):
        table.add_column(head, overflow="fold")
    for each in results:
        lost = map(str, (sum(each.created), sum(each.unsettled), sum(each.failed), each.explained))
        normal = "never" if each.normal_seconds is None else f"{each.normal_seconds:g} s"
        end = f"skipped: {each.skipped}" if each.skipped else normal
        table.add_row(each.fault, each.policy, *lost, end)
    return table


def _text(result: Result) -> str:
    title = f"{result.fault}, {result.policy}: {result.about}"
    if result.skipped:
        return f"{title}: skipped: {result.skipped}"
    normal = "never" if result.normal_seconds is None else f"{result.normal_seconds} s"
    lines = [
        title,
        f"  created {result.created}, failed {result.failed}, unsettled {result.unsettled} "
        "(before, during, after)",
        f"  {result.explained} of them explained by the fault; slowest {result.slowest_seconds} s; "
        f"normal after {normal}; {result.restarts} restarts {result.done}",
        *(f"  {line}" for line in result.readiness),
        *([f"  log: {result.log}"] if result.log else ()),
        *([f"  status: {', '.join(result.status)}"] if result.status else ()),
        *(f"  {series}" for series in result.metrics),
        *(f"  BEYOND: {text}" for text in result.beyond),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
