"""Run a command in a virtual machine: `python -m tests.support.vm [--selinux DIR] -- COMMAND`.

The machine has the file system of its host, a Debian kernel with cgroup v2, and no network. What
the command writes is lost at its end, except its output. With the directory that
`python -m tests.support.vm.image` prints, the machine has SELinux too, and volumes full of files.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tests.support.vm.kernel import built_kernel
from tests.support.vm.machine import MachineError, host_machine
from tools.base_image import BUSYBOX
from tools.build import BuildError

# The policy of SELinux and the volumes are on the disk of the machine with CRI-O.
_LOAD_POLICY = """\
mount -o noatime /dev/vda /mnt
cp -r /mnt/etc/selinux /etc
mkdir -p /volumes
mount --bind /mnt/volumes /volumes
mount --rbind /sys /mnt/sys
mount --bind /proc /mnt/proc
chroot /mnt load_policy -i
"""


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--selinux",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The directory that `python -m tests.support.vm.image` prints.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def main(selinux: Path | None, command: tuple[str, ...]) -> None:
    """Run a command in a virtual machine, and exit as it does."""
    # SIGTERM raises SystemExit, so that the context managers end the machine.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        kernel = built_kernel(lambda line: print(line, file=sys.stderr, flush=True))
        with host_machine(kernel, selinux) as machine:
            policy = "" if selinux is None else _LOAD_POLICY
            code = machine.follow(policy + _script(command, kernel / "modules"))
    except (BuildError, MachineError) as error:
        raise click.ClickException(str(error)) from None
    sys.exit(code)


def _script(command: Sequence[str], modules: Path) -> str:
    # The kernel loads modules by `modprobe`.
    variables = (f"{name}={value}" for name, value in os.environ.items())
    return f"""\
mkdir -p /lib/modules
mount --bind {shlex.quote(str(modules))} /lib/modules
ln -sf {BUSYBOX} /run/modprobe
echo /run/modprobe >/proc/sys/kernel/modprobe
ulimit -n 1048576
cd {shlex.quote(str(Path.cwd()))}
env -i {shlex.join(variables)} {shlex.join(command)}
"""


if __name__ == "__main__":
    main(prog_name="python -m tests.support.vm")
