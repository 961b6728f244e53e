"""linger as a process outside containers: arguments, inherited settings, delays, signals."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.process import free_port
from tests.support.waiting import await_that

TIMEOUT_SECONDS = 60.0


def run(linger: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [linger, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


@contextmanager
def start(linger: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    # In a new session, which has no controlling terminal.
    process = subprocess.Popen(
        [linger, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(TIMEOUT_SECONDS)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


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


@pytest.mark.parametrize("option", ["--sleep=300ms", "--min-lifetime=0.3s"])
@pytest.mark.parametrize(("command", "code"), [("true", 0), ("missing-command", 127)])
def test_exit_is_delayed_for_every_exit_code(
    linger: Path, option: str, command: str, code: int
) -> None:
    started = time.monotonic()
    assert run(linger, option, "--", command).returncode == code
    assert time.monotonic() - started >= 0.3


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
        done = subprocess.run(
            [linger, "--", sys.executable, "-c", script, str(file.fileno()), *odd],
            input="piped",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            pass_fds=[file.fileno()],
            env={"ODD": "odd = value"},
            check=False,
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
    done = subprocess.run(
        [linger, "--", "tool", "/proc/self/cmdline"],
        env={"PATH": f"{tmp_path}/first:{tmp_path}/second"},
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"tool\0/proc/self/cmdline\0")


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


def test_command_inherits_the_signal_mask_and_dispositions(linger: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_SETMASK, {10, 17, 34, 40})\n"
        "for n in (1, 2, 17, 36): signal.signal(n, signal.SIG_IGN)\n"
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    report = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]

    def shown(*command: str | Path) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script, *command],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0
        return done.stdout

    assert shown(linger, "--", *report) == shown(*report)


def run_without_reader(
    *command: str | Path, stream: str = "stderr", env: dict[str, str] | None = None
) -> int:
    """Return the exit code of a command that writes one stream to a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        # subprocess restores the default disposition of SIGPIPE, which containers also have.
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=writer if stream == "stdout" else subprocess.DEVNULL,
            stderr=writer if stream == "stderr" else subprocess.DEVNULL,
            timeout=TIMEOUT_SECONDS,
            check=False,
            env=os.environ | (env or {}),
        )
        return done.returncode
    finally:
        os.close(writer)


def test_broken_pipe_kills_a_program_that_does_not_handle_sigpipe() -> None:
    """This shows that the other tests' pipe is effective."""
    assert run_without_reader("sh", "-c", "exec echo x >&2") == -signal.SIGPIPE


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--", "/nope"], 127),
        (["--min-lifetime=1ms", "--", "/tmp"], 126),
        (["--", "sh", "-c", "exit 42"], 42),
        (["install", "/nope/x"], 1),
        (["install"], 2),
        (["--sleep", "x", "--", "true"], 2),
        ([], 2),
        (["wait-kubelet"], 0),
        (["wait-kubelet", "--timeout", "x"], 2),
    ],
    ids=str,
)
def test_broken_stderr_does_not_change_the_exit_code(
    linger: Path, arguments: list[str], code: int
) -> None:
    assert run_without_reader(linger, *arguments, env={"HOST_IP": "nowhere"}) == code


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_broken_stdout_does_not_change_the_exit_code(linger: Path, argument: str) -> None:
    assert run_without_reader(linger, argument, stream="stdout") == 0


def test_wait_kubelet_with_a_broken_stderr_exits_with_0_at_the_timeout(linger: Path) -> None:
    """No kubelet listens on the port, so the connection is refused until the timeout."""
    arguments = ["wait-kubelet", "--timeout", "1ms", "--port", str(free_port())]
    assert run_without_reader(linger, *arguments, env={"HOST_IP": "127.0.0.1"}) == 0


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory that every user can read and write. pytest's directories are private."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o1777)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user id")
@pytest.mark.parametrize("blocked", [False, True])
def test_broken_stderr_leaves_no_pending_sigpipe_for_an_unforked_command(
    linger: Path, public_directory: Path, blocked: bool
) -> None:
    script = (
        "import os, resource, signal, sys\n"
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
        "if sys.argv[1] == 'True': signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))\n"
        "os.setuid(int(sys.argv[2]))\n"
        "os.execv(sys.argv[3], sys.argv[3:])"
    )
    report = public_directory / "report"
    copy = shutil.copy(linger, public_directory / "linger")
    uid = 20_000 + os.getpid() % 40_000
    # Only shell builtins, because this process cannot fork.
    read = f'while read -r line; do echo "$line"; done < /proc/self/status > {report}; exit 42'
    command = [copy, "--min-lifetime", "1h", "--", "bash", "-c", read]
    code = run_without_reader(sys.executable, "-c", script, str(blocked), str(uid), *command)
    assert code == 42
    fields = dict(line.split(":", 1) for line in report.read_text().splitlines() if ":" in line)
    bit = 1 << signal.SIGPIPE - 1
    assert bool(int(fields["SigBlk"], 16) & bit) is blocked
    assert not int(fields["SigPnd"], 16) & bit
    assert not int(fields["SigIgn"], 16) & bit


@pytest.mark.parametrize("change", ["nothing", "ignored", "blocked", "ignored and blocked"])
def test_command_inherits_the_disposition_and_mask_of_sigpipe(linger: Path, change: str) -> None:
    script = (
        "import os, signal, sys\n"
        "ignored = 'ignored' in sys.argv[1]\n"
        "signal.signal(signal.SIGPIPE, signal.SIG_IGN if ignored else signal.SIG_DFL)\n"
        "if 'blocked' in sys.argv[1]: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})\n"
        "os.execvp(sys.argv[2], sys.argv[2:])"
    )
    report = ["grep", "-E", "^Sig(Pnd|Blk|Ign)", "/proc/self/status"]

    def shown(*command: str | Path) -> str:
        return subprocess.run(
            [sys.executable, "-c", script, change, *command],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=True,
        ).stdout

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
        await_that(lambda: _state(command) in ("", "Z"), "the command died")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


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


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "into").mkdir()
    return tmp_path / "into"


def test_install_to_a_directory_or_a_file_can_be_repeated(linger: Path, directory: Path) -> None:
    for _ in range(2):
        for destination in (directory, directory / "named"):
            done = run(linger, "install", str(destination))
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    installed = sorted(directory.iterdir())
    assert [path.name for path in installed] == ["linger", "named"]  # no temporary file
    for path in installed:
        assert path.read_bytes() == linger.read_bytes()
        assert path.stat().st_mode & 0o7777 == 0o755


def test_install_ignores_the_umask(linger: Path, directory: Path) -> None:
    script = 'umask 077; "$0" install "$1"'
    subprocess.run(["sh", "-c", script, linger, directory], check=True, timeout=TIMEOUT_SECONDS)
    assert (directory / "linger").stat().st_mode & 0o7777 == 0o755


def test_install_replaces_a_running_executable(linger: Path, directory: Path) -> None:
    run(linger, "install", str(directory))
    with start(directory / "linger", "--", "sh", "-c", "echo ready; exec sleep 3600") as process:
        assert first_line(process) == "ready"
        assert run(linger, "install", str(directory)).returncode == 0
        process.terminate()


@pytest.mark.parametrize(
    ("destination", "reason"),
    [
        ("missing/x", "missing/x: No such file or directory"),
        ("file/x", "file/x: Not a directory"),
        (
            "taken",
            "taken/linger: it is a directory; name a regular file, a new file or a directory",
        ),
        ("n" * 250, "n: Filename too long"),
        ("x/" * 2100, "x/: Filename too long"),
    ],
)
def test_install_error_names_the_path_and_the_reason(
    linger: Path, directory: Path, destination: str, reason: str
) -> None:
    (directory / "file").touch()
    (directory / "taken/linger").mkdir(parents=True)
    done = run(linger, "install", f"{directory}/{destination}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"linger: cannot install to {directory}/")
    assert done.stderr.endswith(f"{reason}\n")
    assert sorted(path.name for path in directory.iterdir()) == ["file", "taken"]
    assert [path.name for path in (directory / "taken").iterdir()] == ["linger"]


def _device(path: Path) -> None:
    """Create a device node like /dev/full."""
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 7))


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        pytest.param(
            _device,
            "device",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="makes a device node"),
        ),
        (os.mkfifo, "FIFO"),
        (_socket, "socket"),
        (lambda path: path.symlink_to("file"), "symbolic link"),
        (lambda path: path.symlink_to("missing"), "symbolic link"),
        (lambda path: path.symlink_to("/dev/null"), "symbolic link"),
    ],
    ids=["device", "fifo", "socket", "link to a file", "dangling link", "link to a device"],
)
@pytest.mark.parametrize("into", [True, False], ids=["into a directory", "as a file"])
def test_install_does_not_replace_a_file_that_is_not_regular(
    linger: Path, directory: Path, make: Callable[[Path], object], kind: str, into: bool
) -> None:
    target = directory / "linger"
    make(target)
    (directory / "file").write_text("kept")
    before = target.lstat()
    done = run(linger, "install", str(directory if into else target))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"linger: cannot install to {target}: it is a {kind}; "
        "name a regular file, a new file or a directory\n"
    )
    after = target.lstat()
    assert (after.st_mode, after.st_ino, after.st_rdev) == (
        *(before.st_mode, before.st_ino),
        before.st_rdev,
    )
    assert sorted(path.name for path in directory.iterdir()) == ["file", "linger"]
    assert (directory / "file").read_text() == "kept"


def test_install_follows_a_link_to_a_directory(linger: Path, directory: Path) -> None:
    link = directory.with_name("link")
    link.symlink_to(directory)
    assert run(linger, "install", str(link)).returncode == 0
    assert link.is_symlink()
    assert (directory / "linger").read_bytes() == linger.read_bytes()
