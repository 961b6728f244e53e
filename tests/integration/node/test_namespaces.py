"""Tests of the namespaces of a real node: what they hide, and that nothing outlives them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.node import cgroups
from tests.support.node.drop_ins import DropIns
from tests.support.node.inside import OutsideError
from tests.support.node.leftovers import remove_leftovers
from tests.support.node.requirements import missing_requirements
from tests.support.paths import ROOT
from tests.support.process import run as run_program
from tests.support.waiting import TIMEOUT_SECONDS, await_that

pytestmark = pytest.mark.lab

OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")


@pytest.fixture(autouse=True)
def machine() -> None:
    """Skips the test where a node cannot run, but fails it in CI."""
    if missing := missing_requirements():
        if os.environ.get("CI") == "true":
            pytest.fail("\n".join(missing))
        pytest.skip("\n".join(missing))


def entry(*command: str) -> list[str]:
    return [sys.executable, "-m", "tests.support.node", "--", *command]


def run(directory: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return run_program(*command, cwd=ROOT, env=os.environ | {"TMPDIR": str(directory)})


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A command inside that has started its two children and then said `ready`."""
    with subprocess.Popen(
        entry("sh", "-c", "sleep 1000 & setsid sleep 1000 & echo ready; wait"),
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def node_cgroups(directory: Path) -> list[Path]:
    """Return the cgroups of the node with this work directory, one in each hierarchy."""
    (work,) = directory.glob("podsettle-node-*")
    return cgroups.paths(work.name)


def processes_in(groups: Sequence[Path]) -> list[int]:
    return [int(pid) for pid in (groups[0] / "cgroup.procs").read_text().split()]


def test_command_ends_with_its_exit_code_and_leaves_nothing(tmp_path: Path) -> None:
    made = ["/var/lib/podsettle-test", "/etc/podsettle-test"]
    cgroup = cgroups.hierarchies()[0].mount_point / "podsettle-test"
    script = f"mkdir {' '.join(made)} {cgroup}; touch /run/x; exit 7"
    assert run(tmp_path, entry("sh", "-c", script)).returncode == 7
    assert list(tmp_path.iterdir()) == []
    assert not any(Path(path).exists() for path in made)
    assert not cgroup.exists()


def test_sysctls_of_the_machine_do_not_change(tmp_path: Path) -> None:
    # Neither value harms the machine if the test fails. 2 would limit the memory of its processes.
    before = OVERCOMMIT.read_text()
    other = "0\n" if before == "1\n" else "1\n"
    script = f"echo {other.strip()} > {OVERCOMMIT} && cat {OVERCOMMIT}"
    try:
        assert run(tmp_path, entry("sh", "-c", script)).stdout == other
        assert OVERCOMMIT.read_text() == before
    finally:
        OVERCOMMIT.write_text(before)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_ends_all_processes_and_removes_files_and_cgroups(
    running: subprocess.Popen[str], tmp_path: Path, how: signal.Signals
) -> None:
    groups = node_cgroups(tmp_path)
    watched = [os.pidfd_open(process) for process in processes_in(groups)]
    assert len(watched) >= 4, "init, the shell and two sleeps"
    running.send_signal(how)
    for descriptor in watched:
        assert select.select([descriptor], [], [], TIMEOUT_SECONDS)[0], (
            "a process outlived the command"
        )
        os.close(descriptor)
    await_that(lambda: not list(tmp_path.iterdir()), "the work directory is removed")
    assert not any(group.exists() for group in groups)
    assert running.wait(TIMEOUT_SECONDS) == (-how if how == signal.SIGKILL else 128 + how)


def test_next_start_removes_what_a_killed_keeper_left(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    groups = node_cgroups(tmp_path)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    for process in (running.pid, *map(int, children)):
        os.kill(process, signal.SIGKILL)
    await_that(lambda: not processes_in(groups), "the kernel ends all processes")
    assert list(tmp_path.iterdir())
    assert run(tmp_path, entry("true")).returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert not any(group.exists() for group in groups)


@pytest.fixture
def limits() -> Path:
    """The file with the machine's limits of writes, in version 1 of cgroups."""
    found = cgroups.ROOT / "blkio/blkio.throttle.write_bps_device"
    if not found.exists() or missing_requirements("umount"):
        pytest.skip("no limits of writes of version 1, or no loop devices")
    return found


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_slow_disk_and_its_limit_end_with_the_command(
    tmp_path: Path, limits: Path, how: signal.Signals
) -> None:
    before = limits.read_text()
    script = (
        "import pathlib, time\n"
        "from tests.support.node.slow_disk import slow_disk\n"
        "with slow_disk(pathlib.Path('/var/lib/containerd')) as disk, disk.limited():\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(1000)\n"
    )
    with subprocess.Popen(
        entry(sys.executable, "-c", script),
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        (added,) = {*limits.read_text().splitlines()} - {*before.splitlines()}
        process.send_signal(how)
        process.wait(TIMEOUT_SECONDS)
    await_that(lambda: not list(tmp_path.iterdir()), "the work directory is removed")
    assert limits.read_text() == before
    device = Path(f"/sys/dev/block/{added.split()[0]}")
    await_that(lambda: not (device / "loop").exists(), "the loop device is free")


def test_directory_of_another_user_is_neither_read_nor_removed(tmp_path: Path) -> None:
    """Root would remove the directories that its file names."""
    victim = tmp_path / "victim"
    victim.mkdir()
    planted = tmp_path / "podsettle-node-planted"
    planted.mkdir()
    (planted / "cgroups").write_text(str(victim))
    os.chown(planted, 65534, 65534)
    linked = tmp_path / "podsettle-node-linked"
    linked.symlink_to(victim)
    assert run(tmp_path, entry("true")).returncode == 0
    assert {*tmp_path.iterdir()} == {victim, planted, linked}


def test_machine_is_not_taken_for_a_node(tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="make node"):
        remove_leftovers()
    drop_ins = DropIns(tmp_path / "conf.d")
    drop_ins.add("a.toml", "")
    with pytest.raises(OutsideError):
        drop_ins.write()
    assert not (tmp_path / "conf.d").exists()


def test_another_mount_namespace_is_not_taken_for_a_node(tmp_path: Path) -> None:
    script = "from tests.support.node.inside import is_inside; print(is_inside())"
    python = f"{sys.executable} -c '{script}'"
    found = run(tmp_path, entry("sh", "-c", f"{python}; unshare --mount {python}"))
    assert found.stdout == "True\nFalse\n"
