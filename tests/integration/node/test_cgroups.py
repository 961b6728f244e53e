"""Tests of the controllers that a node enables in a cgroup of version 2.

Plain files stand for the kernel's: what is written stays readable, and a directory cannot be
written.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.node.cgroups import CgroupError, disable_controllers, enable_controllers

pytestmark = pytest.mark.lab


@pytest.fixture
def control(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids\n")
    return tmp_path / "cgroup.subtree_control"


def test_only_needed_controllers_that_are_not_enabled_are_enabled(control: Path) -> None:
    control.write_text("memory io\n")
    assert enable_controllers(control.parent) == {"cpu", "cpuset", "pids"}
    assert control.read_text() == "+cpu +cpuset +pids"


def test_nothing_is_written_if_all_needed_controllers_are_enabled(control: Path) -> None:
    control.write_text("cpuset cpu io memory pids\n")
    control.chmod(0o400)
    assert enable_controllers(control.parent) == set()
    assert control.read_text() == "cpuset cpu io memory pids\n"


def test_controllers_that_cannot_be_enabled_are_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory pids\n")
    # The kernel reads it as empty, and refuses to write it.
    (tmp_path / "cgroup.subtree_control").symlink_to("/proc/sys/kernel/ostype")
    with pytest.raises(CgroupError, match=r"^node: .*: cannot enable memory, pids: .*container"):
        enable_controllers(tmp_path)


def test_disabled_controllers_are_those_that_the_kernel_lets_go(control: Path) -> None:
    control.write_text("")
    assert disable_controllers(control.parent, {"memory", "pids"}) == {"memory", "pids"}
    assert control.read_text() == "-pids"
    control.unlink()
    control.mkdir()
    assert disable_controllers(control.parent, {"memory"}) == set()
