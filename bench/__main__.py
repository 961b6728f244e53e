"""The command line of the benchmark: `python -m bench [ROW…] [--against COMMIT]`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console

from bench import creation, rows
from bench.commands import BenchError
from bench.commits import compile_modules, install
from bench.environment import describe_environment
from bench.results import OTHER, PODSETTLE, Values, as_json, compare, table
from bench.rows import SHORT, Effort, Run
from bench.servers import THIS_CODE, non_loopback_address
from tests.support.checkout import checked_out
from tools.build import BuildError

# The rows, and by what they are measured. Rows of one function share the servers of a round.
_ROWS: dict[str, Callable[[Run, Sequence[str]], Values]] = {
    **dict.fromkeys(rows.SERVER_ROWS, rows.measure_servers),
    "previews": rows.measure_previews,
    "growth": rows.measure_growth,
    "namespaces": rows.measure_api_server,
    "creation": creation.measure,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(_ROWS)))
@click.option("--against", "commit", metavar="COMMIT", help="Measure this commit too, in turn.")
@click.option("--short", is_flag=True, help="Only check that it runs. The figures mean nothing.")
@click.option(
    "--json",
    "results",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write all figures to this file.",
)
def main(names: tuple[str, ...], commit: str | None, short: bool, results: Path | None) -> None:
    """Measure podsettle beside other servers, and with --against beside another commit.

    Without names of rows, measure all. The exit code is 1 if this commit is worse than the other
    one: if the whole 95 % interval of a ratio is worse than 3 % (of memory: 1.4 %).
    """
    # SIGTERM raises SystemExit, so that the context managers stop the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # The load average must be read before the benchmark itself loads the machine.
    environment = describe_environment("bench")
    try:
        values = _measure(names or tuple(_ROWS), SHORT if short else Effort(), commit)
    except (BenchError, BuildError) as error:
        raise click.ClickException(str(error)) from None
    comparisons = list(compare(values))
    if commit:
        environment["commit"] += f" beside {commit}"
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table(comparisons))
    console.print(", ".join(f"{name} {value}" for name, value in environment.items()))
    if short:
        console.print("A short run: the figures mean nothing.")
    if results:
        data = as_json(values, comparisons, environment)
        results.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(not short and any(each.is_worse for each in comparisons))


def _measure(names: Sequence[str], effort: Effort, commit: str | None) -> Values:
    values: Values = {}
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="podsettle-bench-")
        directory = Path(stack.enter_context(temporary))
        certs = directory / "certs"
        codes = {PODSETTLE: THIS_CODE}
        if commit:
            try:
                tree = stack.enter_context(checked_out(commit))
            except ValueError as error:
                raise BenchError(str(error)) from None
            codes[OTHER] = install(tree)
        compile_modules(THIS_CODE)
        command: list[str | Path] = [*THIS_CODE.command, "certs", "--certs-dir", certs]
        command += ["--name", non_loopback_address()] if "creation" in names else []
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        run = Run(directory, certs, effort, codes)
        for measure in dict.fromkeys(_ROWS[name] for name in names):
            values |= measure(run, [name for name in names if _ROWS[name] is measure])
    return values


if __name__ == "__main__":
    main(prog_name="python -m bench")
