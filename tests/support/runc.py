"""Containers that a real `runc` runs, with BusyBox, dash, bash and linger in the root."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import process_status
from tests.support.waiting import TIMEOUT_SECONDS, await_that
from tools.base_image import copy_libraries


def make_rootfs(directory: Path, linger: Path) -> Path:
    """Fill a directory with the three shells, BusyBox' applets and linger, and return it."""
    directory.chmod(0o755)
    for name in ("bin", "dev", "proc", "shared", "sys", "tmp"):
        (directory / name).mkdir()
    for name in ("shared", "tmp"):
        # runc mounts a tmpfs with the mode of the directory below it.
        (directory / name).chmod(0o1777)
    shutil.copy2(linger, directory / "linger")
    busybox = shutil.which("busybox") or ""
    shutil.copy2(busybox, directory / "bin/busybox")
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    for applet in {*listed.stdout.split()} - {"busybox", "dash", "bash"}:
        (directory / "bin" / applet).symlink_to("busybox")
    for shell in ("dash", "bash"):
        shutil.copy2(shutil.which(shell) or "", directory / "bin" / shell)
    copy_libraries([directory / "bin" / shell for shell in ("dash", "bash")], directory)
    return directory


@dataclass
class Container:
    """A running container: the process of `runc run`, and the container's PID 1."""

    runc: subprocess.Popen[bytes]
    # The container's PID 1 in the PID namespace of this machine.
    pid: int
    terminal: int | None = None
    _unread: str = ""

    def signal(self, number: int) -> None:
        """Send a signal to PID 1, like `runc kill`."""
        os.kill(self.pid, number)

    def read_line(self) -> str:
        """Return the next line of the standard output."""
        assert self.runc.stdout is not None
        return self.runc.stdout.readline().decode().rstrip("\n")

    def finish(self) -> tuple[int, str, str]:
        """Wait for the end. Return the exit code and the unread standard output and error."""
        out, err = self.runc.communicate(timeout=TIMEOUT_SECONDS)
        return self.runc.returncode, out.decode(), err.decode()

    def type(self, text: str) -> None:
        """Write text to the terminal."""
        assert self.terminal is not None
        os.write(self.terminal, text.encode())

    def read_until(self, text: str) -> str:
        """Return the terminal's output up to and including a text. Keep the rest for later."""
        assert self.terminal is not None
        while text not in self._unread:
            try:
                some = os.read(self.terminal, 4096)
            except OSError:  # Linux reports a closed other end as an error
                some = b""
            assert some, f"the terminal closed before {text!r}: {self._unread!r}"
            self._unread += some.decode()
        before, _, self._unread = self._unread.partition(text)
        return before + text

    def status(self, field_name: str) -> str:
        """Return a field of PID 1's /proc/PID/status."""
        return process_status(self.pid, field_name)

    def children(self) -> dict[int, str]:
        """Return state and command line of PID 1's children. A zombie has only a state."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    if int(process_status(int(entry.name), "PPid")) != self.pid:
                        continue
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(entry.name)] = (
                        f"{process_status(int(entry.name), 'State')[0]} {command}"
                    )
                except (FileNotFoundError, ProcessLookupError):
                    continue
        return found

    def await_ready(self) -> None:
        """Wait until the command has printed `ready`, and PID 1 can pass signals on to it."""
        assert self.read_line() == "ready"
        # A shell starts the command before it sets its own traps. Until then, it ignores signals.
        if self.pid and "linger" not in self.status("Name"):
            await_that(self._has_traps, "the traps were set")
        # bash may lose a signal that arrives when it begins to wait.
        await_that(lambda: self.status("State")[0] == "S", "it waits")
        await_that(lambda: all(c[0] in "SZ" for c in self.children().values()), "so do the others")

    def _has_traps(self) -> bool:
        """Return whether the shell wrapper has set its last trap, or already ignores the signal."""
        fields = (self.status(name) for name in ("SigCgt", "SigIgn"))
        return any(int(each, 16) >> (signal.SIGWINCH - 1) & 1 for each in fields)

    def await_end_of_command(self) -> None:
        """Wait until PID 1 has no children except the timers of the shell wrapper."""
        await_that(
            lambda: all(": podsettle;" in child for child in self.children().values()),
            "the command ended",
        )
        # bash is running then, and may lose a signal that arrives when it begins to wait again.
        await_that(lambda: self.status("State")[0] == "S", "it waits")


@dataclass
class Machine:
    """A machine that runs containers from one read-only root file system."""

    rootfs: Path
    scratch: Path
    # A uid without passwd entry. It differs between test processes, because RLIMIT_NPROC counts all
    # processes of a user on the machine.
    unprivileged_uid: int = field(default_factory=lambda: 20_000 + os.getpid() % 40_000)

    @contextmanager
    def start(
        self,
        command: Sequence[str],
        *,
        uid: int = 0,
        terminal: bool = False,
        resources: Mapping[str, object] | None = None,
        rlimits: Mapping[str, int] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = "/",
        denied_calls: Sequence[str] = (),
    ) -> Iterator[Container]:
        """Start a container, yield it, and remove it after the block. It may have ended already.

        A seccomp profile denies the system calls in `denied_calls`.
        """
        name = f"podsettle-test-{uuid.uuid4().hex}"
        bundle = self.scratch / name
        bundle.mkdir(parents=True)
        config = _config(self.rootfs, command, uid, terminal, resources or {}, rlimits or {})
        config["process"] |= {"cwd": cwd}
        if denied_calls:
            denied = {"names": list(denied_calls), "action": "SCMP_ACT_ERRNO"}
            config["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [denied]}
        config["process"]["env"] += [f"{key}={value}" for key, value in (env or {}).items()]
        (bundle / "config.json").write_text(json.dumps(config))
        pid_file = bundle / "pid"
        run = ["runc", "run", "--bundle", str(bundle), "--pid-file", str(pid_file), name]
        ours = theirs = None
        if terminal:
            # runc creates the container's terminal, puts this one in raw mode and copies between
            # the two. So the container's terminal interprets the text that a test types here.
            ours, theirs = pty.openpty()
            process = subprocess.Popen(run, stdin=theirs, stdout=theirs, stderr=theirs)
            os.close(theirs)
        else:
            process = subprocess.Popen(
                run, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        # Without it, reading from a container that prints nothing would never end.
        watchdog = threading.Timer(TIMEOUT_SECONDS, _remove, (name,))
        watchdog.start()
        try:
            await_that(
                lambda: process.poll() is not None or (pid_file.exists() and pid_file.read_text()),
                "the container started",
            )
            yield Container(process, _pid(pid_file, process), ours)
        finally:
            watchdog.cancel()
            _remove(name)
            process.kill()
            process.communicate()
            if ours is not None:
                os.close(ours)

    def run(self, command: Sequence[str], **options: Any) -> tuple[int, str, str]:
        """Run a container to its end, with options of `start`.

        Return exit code, standard output and standard error.
        """
        with self.start(command, **options) as container:
            return container.finish()


def _remove(name: str) -> None:
    subprocess.run(["runc", "delete", "--force", name], capture_output=True, check=False)


def _pid(pid_file: Path, process: subprocess.Popen[bytes]) -> int:
    if pid_file.exists():
        return int(pid_file.read_text())
    _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    raise AssertionError(f"runc: {(err or b'').decode()}")


def _config(
    rootfs: Path,
    command: Sequence[str],
    uid: int,
    terminal: bool,
    resources: Mapping[str, object],
    rlimits: Mapping[str, int],
) -> dict[str, Any]:
    def mount(kind: str, where: str, *options: str) -> dict[str, object]:
        return {"destination": where, "type": kind, "source": kind, "options": list(options)}

    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": terminal,
            "user": {"uid": uid, "gid": uid},
            "args": list(command),
            "env": ["PATH=/bin", "TERM=dumb", "PS1=prompt> "],
            "cwd": "/",
            "noNewPrivileges": True,
            "rlimits": [{"type": t, "hard": n, "soft": n} for t, n in rlimits.items()],
        },
        "root": {"path": str(rootfs), "readonly": True},
        "mounts": [
            mount("proc", "/proc"),
            mount("tmpfs", "/dev", "nosuid", "mode=755"),
            mount("devpts", "/dev/pts", "newinstance", "ptmxmode=0666", "mode=0620"),
            mount("tmpfs", "/tmp", "mode=1777"),
            mount("tmpfs", "/shared", "mode=1777"),
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
            "resources": dict(resources),
        },
    }


MIB = 1024 * 1024
# The limits of Woodpecker's permission container: 5Mi of memory and 5m of CPU, for which the
# kubelet sets the smallest possible quota.
TIGHT = {"memory": {"limit": 5 * MIB}, "cpu": {"quota": 1_000, "period": 100_000}}
with_limits = pytest.mark.needs("cgroups")
