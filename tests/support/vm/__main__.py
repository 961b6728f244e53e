"""Run a command in a virtual machine: `python -m tests.support.vm -- COMMAND`.

The machine has the file system of its host, a Debian kernel with cgroup v2, and no network. What
the command writes is lost at its end, except its output.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.base_image import BUSYBOX
from tests.support.kube.build import BuildError
from tests.support.vm.kernel import built_kernel
from tests.support.vm.machine import MachineError, host_machine


def main() -> int:
    """Run the command, and return its exit code."""
    if sys.argv[1:2] != ["--"] or not (command := sys.argv[2:]):
        print("usage: python -m tests.support.vm -- COMMAND [ARGUMENT...]", file=sys.stderr)
        return 2
    # SIGTERM raises SystemExit, so that the context managers end the machine.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        kernel = built_kernel(lambda line: print(line, file=sys.stderr, flush=True))
        with host_machine(kernel) as machine:
            return machine.follow(_script(command, kernel / "modules"))
    except (BuildError, MachineError) as error:
        print(error, file=sys.stderr)
        return 1


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
    sys.exit(main())
