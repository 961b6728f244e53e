"""Tests of the shell wrapper in each installed shell. tests/integration/linger runs it as PID 1."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.process import process_status
from tests.support.shells import SHELL_NAMES, SHELLS
from tests.support.waiting import await_that
from webhook.core.remedies.shell_wrapper import SCRIPT, wrapper

TIMEOUT_SECONDS = 60.0


@pytest.fixture(params=SHELL_NAMES)
def shell(request: pytest.FixtureRequest) -> list[str]:
    """Return the command that starts a shell, without `-c`."""
    start: list[str] = SHELLS[request.param]
    return start


def wrapped(
    shell: Sequence[str], *command: str, sleep_ms: int = 0, min_lifetime_ms: int = 0
) -> list[str]:
    """Return a command as wrapped by a shell."""
    _, *rest = wrapper("sh", sleep_ms=sleep_ms, min_lifetime_ms=min_lifetime_ms)
    return [*shell, *rest, *command]


def run(
    command: Sequence[str], *, path: str | None = None, **variables: str
) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error of a wrapped command."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        executable=shutil.which(command[0]),
        env={"PATH": os.environ["PATH"] if path is None else path, **variables},
    )
    return done.returncode, done.stdout, done.stderr


class Running:
    """A running wrapped command that has printed `ready`. It is killed at the end."""

    def __init__(self, command: Sequence[str]) -> None:
        self._in_bash = command[0] == "bash"
        self._timer_ends_at_once = command[command.index("podsettle") + 1] == "0"
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        # A read from a command without output would block without end.
        self.watchdog = threading.Timer(TIMEOUT_SECONDS, self._kill)
        self.watchdog.start()

    def __enter__(self) -> Running:
        if self.read_line() != "ready":
            self.__exit__()
            raise AssertionError("the command did not come to say that it is ready")
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdout is not None
        self.watchdog.cancel()
        self._kill()
        self.process.wait(TIMEOUT_SECONDS)
        self.process.stdout.close()

    def read_line(self) -> str:
        """Return the next line of the command's standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().rstrip("\n")

    def await_traps(self) -> None:
        """Wait until the wrapper has set its traps or has ended, without any delay."""
        while self.process.poll() is None and not self._has_traps():
            pass

    def send(self, number: signal.Signals) -> None:
        """Send a signal once the traps are set. bash may delay it until it waits."""
        self.await_traps()
        if self._in_bash:
            await_that(self._waits, "it waits")
        self.process.send_signal(number)

    def end(self) -> int:
        """Return the exit code."""
        return self.process.wait(TIMEOUT_SECONDS)

    def _has_traps(self) -> bool:
        """Return whether the last trap is set. At its end the script ignores that signal."""
        fields = (process_status(self.process.pid, name) for name in ("SigCgt", "SigIgn"))
        return any(int(field, 16) >> (signal.SIGWINCH - 1) & 1 for field in fields)

    def _waits(self) -> bool:
        """Return whether bash waits for the command, and no longer for a timer of no length."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        has_timer = self._timer_ends_at_once and len(children) > 1
        return not has_timer and process_status(pid, "State")[0] == "S"

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def test_exit_code_is_that_of_the_command(shell: list[str]) -> None:
    for code in (0, 1, 42, 126, 127, 128, 129, 143, 159, 192, 255):
        command = wrapped(shell, "sh", "-c", f"echo out; echo err >&2; exit {code}")
        assert run(command) == (code, "out\n", "err\n")


FATAL = [
    *(1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    *(16, 24, 25, 26, 27, 29, 30, 31),
]
"""The signals that end a process by default. Without INT and QUIT: dash and BusyBox ignore them."""


@pytest.mark.parametrize(
    ("before", "min_lifetime_ms", "times"),
    [("", 0, 5), ("", 20, 5), ("sleep 0.1; ", 1, 1)],
    ids=["no timer", "while the timer runs", "after its end"],
)
def test_death_by_signal_causes_no_output(
    shell: list[str], before: str, min_lifetime_ms: int, times: int
) -> None:
    for number in FATAL * times:
        script = f"{before}kill -{number} $$"
        command = wrapped(shell, "sh", "-c", script, min_lifetime_ms=min_lifetime_ms)
        assert run(command) == (128 + number, "", "")


def test_arguments_and_environment_of_the_command_are_unchanged(shell: list[str]) -> None:
    odd = ["", " ", "two\nlines", "'\"$(x)`y`$$", "\\", "*", "-c", "--"]
    # Variables with the names that the script uses.
    names = ["pid", "code", "s", "timer", "ending", "last", "others", "key", "bits"]
    names += ["pass", "end", "interrupt", "started", "nap"]
    # bash removes this variable when it leaves POSIX mode.
    names += ["POSIXLY_CORRECT"]
    direct = ["sh", "-c", 'env | sort; printf "<%s>" "$0" "$@"', *odd]
    code, out, err = run(wrapped(shell, *direct), **dict.fromkeys(names, "exported"))
    assert (code, err) == (0, "")
    # Shells export a few variables of their own, with or without a wrapper: PWD, OLDPWD, SHLVL, _.
    own = ("PWD=", "OLDPWD=", "SHLVL=", "_=")
    lines = [line for line in out.splitlines() if not line.startswith(own)]
    direct_lines = run(direct, **dict.fromkeys(names, "exported"))[1].splitlines()
    assert lines == [line for line in direct_lines if not line.startswith(own)]
    assert all(f"{name}=exported" in lines for name in names)


@pytest.fixture
def bin_directory(tmp_path: Path) -> Path:
    """Return an empty directory to use as PATH."""
    directory = tmp_path / "bin"
    directory.mkdir()
    return directory


def test_missing_sleep_program_causes_no_delay_and_no_output(
    shell: list[str], bin_directory: Path
) -> None:
    command = wrapped(shell, "/bin/sh", "-c", "exit 5", sleep_ms=50, min_lifetime_ms=50)
    assert run(command, path=str(bin_directory)) == (5, "", "")


# Not in BusyBox, which prefers its own applet to programs in PATH.
@pytest.mark.parametrize("shell", ["sh", "bash", "bash-as-sh"], indirect=True)
def test_sleep_without_fractions_sleeps_for_whole_seconds(
    shell: list[str], bin_directory: Path
) -> None:
    log = bin_directory / "log"
    sleep = bin_directory / "sleep"
    sleep.write_text(
        "#!/bin/sh\n"
        f'echo "$1" >> {log}\n'
        'case $1 in *[!0-9]*) echo "sleep: invalid number" >&2; exit 1;; esac\n'
    )
    sleep.chmod(0o755)
    command = wrapped(shell, "/bin/sh", "-c", "exit 5", sleep_ms=10, min_lifetime_ms=500)
    assert run(command, path=str(bin_directory)) == (5, "", "")
    assert log.read_text().split() == ["0.49", "1", "0.01", "1"]


def test_command_dies_of_a_forwarded_signal(shell: list[str]) -> None:
    """linger/test_containers sends each signal to a command that handles it."""
    codes = {"HUP": 129, "INT": 130, "QUIT": 131, "TERM": 143, "USR1": 138, "USR2": 140}
    for name, code in codes.items():
        with Running(wrapped(shell, "sh", "-c", "echo ready; exec sleep 1000")) as running:
            running.send(signal.Signals[f"SIG{name}"])
            assert running.end() == code, name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_command_that_ignores_int_and_quit_gets_term_except_in_bash(
    shell: list[str], number: signal.Signals
) -> None:
    """In shells other than bash every command starts with both ignored, and gets TERM instead."""
    script = (
        f"trap '' {int(number)}; trap 'exit 9' TERM; trap 'exit 8' USR1; echo ready;"
        " while :; do sleep 1000 & wait; done"
    )
    with Running(wrapped(shell, "sh", "-c", script)) as running:
        running.send(number)
        # Of two pending signals the lower number is delivered first: USR1 before TERM, if TERM
        # was sent at all, but after the shell has handled INT or QUIT.
        running.send(signal.SIGUSR1)
        assert running.end() in ({8} if shell[0] == "bash" else {8, 9})


INTERNAL_SIGNALS = 1 << 31 | 1 << 32
"""Signals 32 and 33. glibc's `posix_spawn`, which Python 3.13 uses, ignores them."""


@pytest.mark.parametrize("shell", ["bash", "bash-as-sh"], indirect=True)
def test_command_in_bash_starts_with_unchanged_signal_dispositions(shell: list[str]) -> None:
    script = 'grep -E "^Sig(Ign|Blk)" /proc/self/status; cut -d" " -f1,5 /proc/$$/stat'
    _, out, _ = run(wrapped(shell, "sh", "-c", script))
    _, direct, _ = run(["sh", "-c", script])
    assert out.splitlines()[:2] == direct.splitlines()[:2]
    ignored = next(line for line in out.splitlines() if line.startswith("SigIgn:"))
    assert int(ignored.split()[1], 16) & ~INTERNAL_SIGNALS == 0
    pid, group = out.splitlines()[2].split()
    assert pid == group


LONG_DELAYS = [{"sleep_ms": 3_600_000}, {"min_lifetime_ms": 3_600_000}]


@pytest.mark.parametrize("durations", LONG_DELAYS)
@pytest.mark.parametrize("code", [0, 42, 127, 143])
def test_command_that_handles_a_signal_and_ends_later_keeps_its_exit_code(
    shell: list[str], code: int, durations: dict[str, int]
) -> None:
    script = (
        f"trap 'n=0; while [ $n -lt 5000 ]; do n=$((n + 1)); done; exit {code}' TERM; echo ready;"
        " while :; do sleep 1000 & wait; done"
    )
    # bash may reap the command outside of `wait`, and 127 also says that it forgot the exit code.
    allowed = {code, 143} if shell[0] == "bash" and code == 127 else {code}
    with Running(wrapped(shell, "sh", "-c", script, **durations)) as running:
        running.send(signal.SIGTERM)
        assert running.end() in allowed


def test_command_that_handles_many_signals_keeps_its_exit_code(shell: list[str]) -> None:
    script = (
        "trap 'echo got' USR1; trap 'exit 42' TERM; echo ready; while :; do sleep 1000 & wait; done"
    )
    with Running(wrapped(shell, "sh", "-c", script)) as running:
        for _ in range(6):
            running.send(signal.SIGUSR1)
            assert running.read_line() == "got"
        running.send(signal.SIGTERM)
        assert running.end() == 42


@pytest.mark.parametrize("code", [0, 42, 127, 143])
def test_exit_code_is_kept_in_a_shell_that_forgets_it_after_one_wait(code: int) -> None:
    """The shell is bash that stays in POSIX mode, which behaves like no other installed shell.

    Runs often: the shell forgets the exit code only if the job has ended before `wait`.
    """
    command = wrapped(["bash", "--posix"], "sh", "-c", f"exit {code}")
    command[3] = command[3].replace("shopt -q", "false")
    assert command[3] != SCRIPT
    for _ in range(30):
        assert run(command) == (code, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signal_at_the_end_of_the_command_loses_no_exit_code(
    shell: list[str], number: signal.Signals
) -> None:
    """Only bash may lose the exit code. It is 128 plus the signal then."""
    allowed = {42, 128 + number} if shell[0] == "bash" else {42}
    deadline = time.monotonic() + 0.8
    moments = random.Random(number)
    rounds = 0
    while time.monotonic() < deadline or rounds < 20:
        command = wrapped(shell, "sh", "-c", "trap '' TERM HUP; echo ready; exit 42")
        with Running(command) as running:
            running.await_traps()
            spin = time.monotonic() + moments.random() * 0.002
            while time.monotonic() < spin:
                pass
            running.process.send_signal(number)
            assert running.end() in allowed
        rounds += 1
