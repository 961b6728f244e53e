"""The command line of the experiments: `python -m lab EXPERIMENT`, which `make lab` calls."""

from __future__ import annotations

import click

from lab.open_files import open_files
from lab.price import price
from lab.race import race
from lab.selinux import selinux
from lab.start_gate import start_gate
from lab.umount import umount


@click.group(context_settings={"show_default": True})
def main() -> None:
    """Run an experiment and print its tables. The exit code is 1 if they show too little."""


for _command in (race, price, umount, selinux, start_gate, open_files):
    main.add_command(_command)

if __name__ == "__main__":
    main(prog_name="python -m lab")
