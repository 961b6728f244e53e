"""`python -m tests.contract [--against COMMIT]`: print the listing, or compare it with a commit's.

The comparison is a diff, and the exit code is 1 if the two listings differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
from difflib import unified_diff
from pathlib import Path

import click

from tests.contract import listing
from tests.support.checkout import checked_out
from tests.support.paths import ROOT


@click.command()
@click.option("--against", metavar="COMMIT", help="Print only what differs from this commit.")
def main(against: str | None) -> None:
    """Print everything that a user of podsettle names."""
    here = lines_of(ROOT)
    if against is None:
        click.echo("\n".join(here))
        return
    try:
        with checked_out(against) as tree:
            there = lines_of(tree)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    differences = list(unified_diff(there, here, against, "this tree", lineterm="", n=0))
    click.echo("\n".join(differences) or f"no difference from {against}")
    sys.exit(bool(differences))


def lines_of(tree: Path) -> list[str]:
    """Return the listing of the code and the pages in a directory."""
    ran = subprocess.run(
        [sys.executable, listing.__file__],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return ran.stdout.splitlines()


if __name__ == "__main__":
    main(prog_name="python -m tests.contract")
