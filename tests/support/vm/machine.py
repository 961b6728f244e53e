"""A running virtual machine, whose root runs scripts."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DIE_WITH_PARENT = Path(__file__).parents[1] / "die_with_parent.py"
_PROGRAM = "/usr/bin/qemu-system-x86_64"
# SELinux is permissive: it labels files, and denies nothing. On a loaded machine, the kernel takes
# the emulated timer for broken, and does not boot.
_KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet panic=-1 no_timer_check lsm=selinux security=selinux selinux=1 enforcing=0"
)
_MEBIBYTES = 1024
# On a machine with ten busy processes for each core, a boot takes minutes.
_TIMEOUT_SECONDS = 600.0
_TAIL_LINES = 30


class MachineError(Exception):
    """The machine did not do what it was told. The message ends with what it printed."""


class Machine:
    """A virtual machine of one processor, without a network."""

    def __init__(self, image: Path, directory: Path) -> None:
        """`image` is what `python -m tests.support.vm.image` prints. `directory` is empty."""
        self.share = directory
        """In the machine it is `/share`."""
        self._console = directory / "console.log"
        self._scripts = 0
        self._buffer = b""
        share = f"local,path={directory},mount_tag=share,security_model=none"
        disk = f"file={image / 'disk'},if=virtio,format=raw,cache=unsafe"
        command = [
            *(_PROGRAM, "-accel", "tcg", "-cpu", "max", "-m", str(_MEBIBYTES), "-nic", "none"),
            *("-kernel", str(image / "kernel"), "-initrd", str(image / "initramfs")),
            *("-append", _KERNEL_ARGUMENTS, "-no-reboot", "-display", "none", "-monitor", "none"),
            *("-drive", disk, "-snapshot", "-virtfs", share),
            *("-serial", f"file:{self._console}", "-serial", "stdio"),
        ]
        # QEMU, which the terminal's Ctrl-C does not reach, ends with this process.
        guard = [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid())]
        with (directory / "qemu.log").open("w") as log:
            self._process = subprocess.Popen(
                [*guard, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def await_boot(self) -> None:
        """Wait until the machine runs scripts."""
        if (line := self._read_line()) != "ready":
            raise MachineError(f"vm: it printed {line!r} instead of ready: {self._tail()}")

    def run(self, script: str) -> str:
        """Run a script of `sh -e` to its end, and return its output.

        Raises MachineError if the exit code is not 0.
        """
        self._scripts += 1
        name = f"script-{self._scripts}"
        (self.share / name).write_text(script)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n".encode())
        self._process.stdin.flush()
        code = self._read_line()
        output = (self.share / f"{name}.out").read_text(errors="replace")
        if code != "0":
            raise MachineError(f"vm: exit code {code}:\n{script}\n{output}")
        return output

    def stop(self) -> None:
        """End the machine. Nothing of its disk is kept."""
        self._process.kill()
        self._process.wait()

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while b"\n" not in self._buffer:
            readable, _, _ = select.select([descriptor], [], [], deadline - time.monotonic())
            received = os.read(descriptor, 4096) if readable else b""
            if not received:
                cause = "it ended" if readable else f"no answer in {_TIMEOUT_SECONDS:.0f} s"
                raise MachineError(f"vm: {cause}:\n{self._tail()}")
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace").strip()

    def _tail(self) -> str:
        logs = (self.share / "qemu.log", self._console)
        lines = [
            line
            for log in logs
            if log.exists()
            for line in log.read_text(errors="replace").splitlines()
        ]
        return "\n".join(lines[-_TAIL_LINES:])


@contextmanager
def running_machine(image: Path) -> Iterator[Machine]:
    """Start a machine, and end it with the block."""
    with tempfile.TemporaryDirectory(prefix="podsettle-vm-") as directory:
        machine = Machine(image, Path(directory))
        try:
            machine.await_boot()
            yield machine
        finally:
            machine.stop()
