"""linger as a process outside containers: arguments, inherited settings, delays, signals."""

from __future__ import annotations

import os
import signal
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tests.support.linger_process import first_line, start
from tests.support.paths import ROOT
from tests.support.process import is_running, run
from tests.support.waiting import TIMEOUT_SECONDS, await_that


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--"],
        ["true"],
        ["--sleep", "1s"],
        ["--sleep", "1s", "--"],
        ["--sleep"],
        ["--sleep", "--", "touch", "started"],
        ["--sleep=", "--", "touch", "started"],
        ["--sleep", "5", "--", "touch", "started"],
        ["--sleep", "-1s", "--", "touch", "started"],
        ["--min-lifetime", "1 s", "--", "touch", "started"],
        ["--sleepy", "1s", "--", "touch", "started"],
        ["--version", "--", "touch", "started"],
        ["touch", "started", "--", "touch", "started"],
        ["install"],
        ["install", "a", "b"],
        ["", "--", "touch", "started"],
    ],
)
def test_wrong_usage_exits_with_2_and_starts_no_command(
    linger: Path, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(linger, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("linger: ")
    assert "usage: linger " in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_version_is_that_of_the_project(linger: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    done = run(linger, "--version")
    assert (done.returncode, done.stdout) == (0, f"linger {project['version']}\n")


def test_help_is_printed_to_standard_output(linger: Path) -> None:
    done = run(linger, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for option in ("--sleep", "--min-lifetime", "install DEST", "wait-kubelet"):
        assert option in done.stdout


def test_longer_delay_applies_and_the_minimum_lifetime_counts_from_the_start(linger: Path) -> None:
    """Both delays together, or one that counts from the command's end, would take 6 s."""
    with (
        start(linger, "--sleep=1ms", "--min-lifetime=3s", "--", "sleep", "3") as process,
        start(linger, "--sleep=1500ms", "--", "sleep", "3") as later,
    ):
        assert process.wait(TIMEOUT_SECONDS) == 0
        assert later.poll() is None


def test_command_gets_arguments_stdin_environment_and_open_files_unchanged(
    linger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = (
        "import os, sys; print(sys.argv[1:], sys.stdin.read(), os.getcwd(), os.environ['ODD'],"
        " os.fstat(int(sys.argv[1])).st_ino)"
    )
    odd = ["", " ", "two\nlines", "'\"$(x)$$", "--", "--sleep"]
    with (tmp_path / "open").open("w") as file:
        done = run(
            linger,
            "--",
            sys.executable,
            "-c",
            script,
            str(file.fileno()),
            *odd,
            input="piped",
            pass_fds=[file.fileno()],
            env={"ODD": "odd = value"},
        )
        expected = [
            *([str(file.fileno()), *odd], "piped", tmp_path, "odd = value"),
            os.fstat(file.fileno()).st_ino,
        ]
    assert done.stdout.rstrip("\n") == " ".join(map(str, expected)), done.stderr


def test_command_is_found_in_path_and_keeps_its_name(linger: Path, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    (tmp_path / "first/tool").write_text("not executable")
    (tmp_path / "second/tool").symlink_to("/bin/cat")
    path = {"PATH": f"{tmp_path}/first:{tmp_path}/second"}
    done = run(linger, "--", "tool", "/proc/self/cmdline", env=path)
    assert (done.returncode, done.stdout) == (0, "tool\0/proc/self/cmdline\0")


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("missing", 127, "missing: No such file or directory"),
        ("plain/below", 127, "plain/below: Not a directory"),
        ("plain", 126, "plain: Permission denied"),
        ("garbage", 126, "garbage: Exec format error"),
        ("no-interpreter", 127, "no-interpreter: its interpreter or loader was not found"),
    ],
)
def test_error_message_says_why_a_command_cannot_run(
    linger: Path, tmp_path: Path, name: str, code: int, reason: str
) -> None:
    (tmp_path / "plain").write_text("text")
    (tmp_path / "garbage").write_bytes(b"\x7fELF garbage")
    (tmp_path / "garbage").chmod(0o755)
    (tmp_path / "no-interpreter").write_text("#!/missing/interpreter\n")
    (tmp_path / "no-interpreter").chmod(0o755)
    done = run(linger, "--", f"{tmp_path}/{name}")
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == f"linger: cannot run {tmp_path}/{reason}\n"


@pytest.mark.parametrize("name", ["", "no-such-command-anywhere"])
def test_command_that_is_not_in_path_gives_127(linger: Path, name: str) -> None:
    done = run(linger, "--", name)
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == f"linger: cannot run {name}: No such file or directory\n"


@pytest.mark.parametrize(
    ("blocked", "ignored"),
    [({10, 17, 34, 40}, (1, 2, 17, 36)), ({}, ()), ({}, (13,)), ({13}, ()), ({13}, (13,))],
)
def test_command_inherits_the_signal_mask_and_dispositions(
    linger: Path, blocked: object, ignored: tuple[int, ...]
) -> None:
    """Also those of SIGPIPE, 13, which Python ignores from its start on."""
    script = (
        "import os, signal, sys\n"
        f"signal.pthread_sigmask(signal.SIG_SETMASK, {blocked})\n"
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
        f"for n in {ignored}: signal.signal(n, signal.SIG_IGN)\n"
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    report = ["grep", "-E", "^Sig(Pnd|Blk|Ign)", "/proc/self/status"]

    def shown(*command: str | Path) -> str:
        done = run(sys.executable, "-c", script, *command)
        assert done.returncode == 0
        return done.stdout

    assert shown(linger, "--", *report) == shown(*report)


@pytest.mark.parametrize("number", [1, 2, 3, 6, 9, 10, 11, 13, 14, 15, 34, 64])
def test_command_killed_by_a_forwarded_signal_gives_128_plus_n(linger: Path, number: int) -> None:
    """SIGKILL is not forwarded: it kills linger, and the command together with it."""
    with start(linger, "--sleep", "1h", "--", "sh", "-c", "echo $$; exec sleep 3600") as process:
        command = int(first_line(process))
        if number in (6, 9, 10, 11, 13, 14, 34, 64):
            os.kill(command, number)
            _await_end(command)
            process.terminate()
        else:
            process.send_signal(number)
        assert process.wait(TIMEOUT_SECONDS) == 128 + number


def _await_end(pid: int) -> None:
    def ended() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    await_that(ended, "the process was reaped")


def test_killing_linger_kills_the_command(linger: Path) -> None:
    with start(linger, "--", "sh", "-c", "echo $$; exec sleep 3600") as process:
        command = int(first_line(process))
        process.kill()
        process.wait(TIMEOUT_SECONDS)
        await_that(lambda: not is_running(command), "the command died")


def test_signal_to_the_process_group_of_the_command_does_not_end_the_delay(linger: Path) -> None:
    started = time.monotonic()
    with start(linger, "--sleep", "500ms", "--", "sh", "-c", "trap '' TERM; kill 0") as process:
        assert process.wait(TIMEOUT_SECONDS) == 0
    assert time.monotonic() - started >= 0.5


def test_signals_at_the_end_of_the_command_do_not_change_the_exit_code(linger: Path) -> None:
    for _ in range(100):
        with start(linger, "--", "sh", "-c", "trap '' TERM; echo ready; exit 42") as process:
            assert first_line(process) == "ready"
            while process.poll() is None:
                process.send_signal(signal.SIGTERM)
            assert process.returncode == 42
