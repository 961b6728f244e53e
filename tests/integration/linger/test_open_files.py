"""Limits on open files that linger and the shell wrapper set before a command starts."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.support.process import run
from tests.support.runc import Machine
from tests.support.shells import SHELL_NAMES, SHELLS
from tests.support.waiting import TIMEOUT_SECONDS
from tests.support.wrappers import Wrapper

SHOW = ("sh", "-c", "ulimit -Sn; ulimit -Hn; echo err >&2; exit 7")


def limited(
    linger: Path, name: str, soft: int, hard: int | None, sleep_ms: int | None = None
) -> list[str]:
    """Return the strings before a command, for a program of this machine."""
    if name == "linger":
        wrapper = Wrapper(name).around([], sleep_ms=sleep_ms, soft=soft, hard=hard)
        return [str(linger), *wrapper[1:]]
    start = SHELLS[name]
    wrapper = Wrapper("dash").around([], sleep_ms=sleep_ms, soft=soft, hard=hard)
    return [*start, *wrapper[1:]]


def run_under(soft: int, hard: int, command: Sequence[str]) -> tuple[int, str, str]:
    """Run a command under limits."""
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
    done = run(*command, preexec_fn=limit)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", ["linger", *SHELL_NAMES])
@pytest.mark.parametrize(
    ("present", "wanted", "expected"),
    [
        ((256, 4096), (1024, None), (1024, 4096)),
        ((256, 4096), (1024, 2048), (1024, 2048)),
        ((256, 4096), (4096, 4096), (4096, 4096)),
        ((4096, 4096), (512, 1024), (512, 1024)),
        ((4096, 4096), (512, None), (512, 4096)),
        # The hard limit is never raised, and the soft limit is at most the hard limit.
        ((256, 4096), (1024, 8192), (1024, 4096)),
        ((256, 4096), (8192, None), (4096, 4096)),
        ((256, 4096), (8192, 16384), (4096, 4096)),
    ],
)
@pytest.mark.parametrize("sleep_ms", [None, 1], ids=["alone", "with-a-delay"])
def test_command_has_the_limits_that_the_hard_limit_allows(
    linger: Path,
    name: str,
    present: tuple[int, int],
    wanted: tuple[int, int | None],
    expected: tuple[int, int],
    sleep_ms: int | None,
) -> None:
    command = [*limited(linger, name, *wanted, sleep_ms), *SHOW]
    soft, hard = expected
    assert run_under(*present, command) == (7, f"{soft}\n{hard}\n", "err\n")


@pytest.mark.parametrize(
    "limits", ["", "0", "x", "1x", "-1", "1:", ":1", "1:0", "1:1:1", "2147483648", "9" * 40]
)
def test_wrong_limits_are_wrong_usage(linger: Path, limits: str) -> None:
    for arguments in (("--open-files", limits), (f"--open-files={limits}",)):
        done = run(linger, *arguments, "--", "true")
        assert (done.returncode, done.stdout) == (2, "")
        assert "not limits of open files: " in done.stderr


def test_limits_may_be_given_with_an_equals_sign(linger: Path) -> None:
    done = run(linger, "--open-files=200:300", "--", "sh", "-c", "ulimit -Sn")
    assert (done.returncode, done.stdout) == (0, "200\n")


def test_missing_command_gives_127(linger: Path) -> None:
    done = run(linger, "--open-files", "100", "--", "/missing")
    assert done.returncode == 127
    assert done.stderr == "linger: cannot run /missing: No such file or directory\n"


@pytest.mark.parametrize("name", ["linger", *SHELL_NAMES])
def test_command_replaces_the_wrapper_and_inherits_everything_else(linger: Path, name: str) -> None:
    """The process, its parent, its group, its signals and its streams are those without it."""
    show = (
        "import os, signal, sys; "
        "print(os.getpid(), os.getpgid(0), *sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),"
        " signal.getsignal(signal.SIGINT), sys.stdin.read(), *sys.argv[1:])"
    )
    command = [*limited(linger, name, 100, None), "python3", "-c", show, "a b", "", "--"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    out, _ = process.communicate("input", timeout=TIMEOUT_SECONDS)
    pid, group, *rest = out.split(" ", 2)
    assert int(pid) == int(group) == process.pid
    assert rest[0].endswith("input a b  --\n")
    plain = run("python3", *command[-5:], input="input")
    assert rest[0] == plain.stdout.split(" ", 2)[2]


def test_command_is_process_1_of_its_container(machine: Machine, wrapper: Wrapper) -> None:
    script = "tr '\\0' ' ' </proc/1/cmdline; ulimit -Sn; exit 5"
    command = wrapper.around([wrapper.shell, "-c", script], sleep_ms=None, soft=100, hard=200)
    code, out, err = machine.run(command)
    assert (code, err) == (5, "")
    assert out.startswith(f"{wrapper.shell} -c tr ")
    assert out.endswith(" 100\n")
