"""The command line of the faults: `python -m tests.faults --only sigkill`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import click

from tests.faults import scenarios as scenarios
from tests.faults.result import Result
from tests.faults.rig import FailurePolicy, run
from tests.faults.scenario import SCENARIOS


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(SCENARIOS)), help="A scenario.")
@click.option("--short", is_flag=True, help="Only some scenarios, for a nightly run.")
@click.option(
    "--write",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A JSON file in which the results replace those of the same scenarios.",
)
def main(only: Sequence[str], short: bool, file: Path | None) -> None:
    """Make faults around podsettle while pods are created, and fail if pods are lost."""
    chosen = [
        each
        for each in SCENARIOS.values()
        if (each.name in only or not only) and (each.is_short or not short)
    ]
    bad = []
    for each in chosen:
        for policy in get_args(FailurePolicy):
            result = run(each, policy)
            click.echo(_text(result))
            if file is not None:
                _write(file, result)
            if result.is_bad:
                bad.append(f"{result.fault} with {policy}")
    if bad:
        raise click.ClickException(f"lost more than the fault explains: {', '.join(bad)}")


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


def _write(file: Path, result: Result) -> None:
    """Write a result at once, because a whole run takes long."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    known[f"{result.fault}/{result.policy}"] = asdict(result)
    order = {name: number for number, name in enumerate(SCENARIOS)}
    kept = {key: known[key] for key in sorted(known, key=lambda key: _place(key, order))}
    file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _place(key: str, order: dict[str, int]) -> tuple[int, int]:
    fault, _, policy = key.partition("/")
    return order.get(fault, -1), get_args(FailurePolicy).index(policy)


if __name__ == "__main__":
    main()
