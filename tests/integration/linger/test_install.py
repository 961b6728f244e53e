"""Tests of `linger install`."""

from __future__ import annotations

import os
import resource
import socket
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.linger_process import first_line, start
from tests.support.process import run


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
    assert run(linger, "install", directory, umask=0o077).returncode == 0
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


def test_install_that_cannot_write_the_whole_file_leaves_nothing(
    linger: Path, directory: Path
) -> None:
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (4096, 4096))
    # Python ignores SIGXFSZ, and the helper inherits that here.
    done = run(linger, "install", directory, preexec_fn=limit, restore_signals=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"linger: cannot install to {directory}/linger: File too large\n"
    assert list(directory.iterdir()) == []


def _device(path: Path) -> None:
    """Create a device node like /dev/full."""
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 7))


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        pytest.param(_device, "device", marks=pytest.mark.needs("root")),
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
