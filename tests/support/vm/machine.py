"""A running virtual machine, whose root runs scripts."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

_DIE_WITH_PARENT = Path(__file__).parents[1] / "die_with_parent.py"
_PROGRAM = "/usr/bin/qemu-system-x86_64"
# On a loaded machine, the kernel takes the emulated timer for broken, and does not boot. It takes
# the processor's TSC for unstable, and reads the HPET instead, which is slow to emulate.
_KERNEL_ARGUMENTS = "console=ttyS0 quiet panic=-1 no_timer_check clocksource=tsc tsc=reliable"
# SELinux is permissive: it labels files, and denies nothing.
_SELINUX = "lsm=selinux security=selinux selinux=1 enforcing=0"
# On a machine with ten busy processes for each core, a boot takes minutes.
_TIMEOUT_SECONDS = 600.0
_FOLLOW_SECONDS = 0.5
# The longest test prints nothing for a quarter of an hour. A guest that hangs never prints again.
_SILENCE_SECONDS = 2400.0
_TAIL_LINES = 30


class MachineError(Exception):
    """The machine did not do what it was told. The message ends with what it printed."""


class Machine:
    """A virtual machine without a network."""

    def __init__(self, kernel: Path, directory: Path, arguments: str, *options: str) -> None:
        """Start QEMU with the kernel and the initramfs of a directory. The other one is empty.

        `arguments` are the kernel's, and `options` are QEMU's.
        """
        self.share = directory
        """In the machine it is `/share`."""
        self._console = directory / "console.log"
        self._scripts = 0
        self._buffer = b""
        share = f"local,path={directory},mount_tag=share,security_model=none"
        command = [
            *(_PROGRAM, "-accel", "tcg", "-cpu", "max", "-nic", "none", *options),
            *("-kernel", str(kernel / "kernel"), "-initrd", str(kernel / "initramfs")),
            *("-append", f"{_KERNEL_ARGUMENTS} {arguments}", "-no-reboot"),
            *("-display", "none", "-monitor", "none", "-virtfs", share),
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
        name = self._send(script)
        code = self._read_line()
        output = (self.share / f"{name}.out").read_text(errors="replace")
        if code != "0":
            raise MachineError(f"vm: exit code {code}:\n{script}\n{output}")
        return output

    def follow(self, script: str) -> int:
        """Run a script of `sh -e`, print its output as it comes, and return its exit code.

        Raises MachineError if there is no output for 40 minutes.
        """
        output = self.share / f"{self._send(script)}.out"
        deadline = time.monotonic() + _SILENCE_SECONDS
        with output.open("a+b") as file:
            file.seek(0)
            while not self._is_readable(_FOLLOW_SECONDS):
                if printed := file.read():
                    self._print(printed)
                    deadline = time.monotonic() + _SILENCE_SECONDS
                elif time.monotonic() > deadline:
                    silence = f"no output for {_SILENCE_SECONDS:.0f} s"
                    raise MachineError(f"vm: {silence}:\n{self._tail()}")
            code = self._read_line()
            self._print(file.read())
        return int(code)

    def stop(self) -> None:
        """End the machine. Nothing of its disk is kept."""
        self._process.kill()
        self._process.wait()

    def _send(self, script: str) -> str:
        """Let the machine run a script, and return its name in the share."""
        self._scripts += 1
        name = f"script-{self._scripts}"
        (self.share / name).write_text(script)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n".encode())
        self._process.stdin.flush()
        return name

    def _is_readable(self, seconds: float) -> bool:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], seconds)
        return bool(readable)

    @staticmethod
    def _print(output: bytes) -> None:
        sys.stdout.buffer.write(output)
        sys.stdout.buffer.flush()

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while b"\n" not in self._buffer:
            readable = self._is_readable(max(deadline - time.monotonic(), 0))
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


def selinux_machine(image: Path) -> AbstractContextManager[Machine]:
    """Run the machine with SELinux that `python -m tests.support.vm.image` prints."""
    return _running(image, _SELINUX, "-m", "1G", *_disk(image))


def host_machine(kernel: Path, selinux: Path | None = None) -> AbstractContextManager[Machine]:
    """Run a machine on the file system of its host. All changes stay in its memory.

    It has cgroup v2, and no AppArmor. With the directory of a machine with SELinux, it has SELinux
    too, and that machine's disk as `/dev/vda`.
    """
    host = "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"
    modules = "lsm=capability" if selinux is None else _SELINUX
    disk = () if selinux is None else _disk(selinux)
    size = ("-smp", "2", "-m", "8G")
    return _running(kernel, f"{modules} root_on=host", *size, "-virtfs", host, *disk)


def _disk(image: Path) -> tuple[str, ...]:
    drive = f"file={image / 'disk'},if=virtio,format=raw,cache=unsafe"
    return ("-drive", drive, "-snapshot")


@contextmanager
def _running(kernel: Path, arguments: str, *options: str) -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="podsettle-vm-") as directory:
        machine = Machine(kernel, Path(directory), arguments, *options)
        try:
            machine.await_boot()
            yield machine
        finally:
            machine.stop()
