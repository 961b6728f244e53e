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
