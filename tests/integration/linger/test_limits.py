"""Tests of wrapped commands in containers with small limits of CPU and memory."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.node import cgroups
from tests.support.runc import MIB, TIGHT, Container, Machine, with_limits
from tests.support.wrappers import Wrapper


def _cgroup_value(container: Container, controller: str, v1: str, v2: str) -> str:
    for line in Path(f"/proc/{container.pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return Path(f"/sys/fs/cgroup/{controller}{path}/{v1}").read_text().strip()
    path = Path(f"/proc/{container.pid}/cgroup").read_text().strip().removeprefix("0::")
    return Path(f"/sys/fs/cgroup{path}/{v2}").read_text().strip()


@with_limits
def test_wrapped_command_runs_within_the_smallest_limits(
    machine: Machine, wrapper: Wrapper
) -> None:
    script = "trap 'exit 42' TERM; echo ready; while :; do sleep 1000 & wait; done"
    command = wrapper.script(script, min_lifetime_ms=20)
    with machine.start(command, resources=TIGHT) as container:
        container.await_ready()
        assert _cgroup_value(container, "memory", "memory.limit_in_bytes", "memory.max") == str(
            5 * MIB
        )
        assert _cgroup_value(container, "cpu", "cpu.cfs_quota_us", "cpu.max").split()[0] == "1000"
        container.signal(signal.SIGTERM)
        assert container.finish() == (42, "", "")


@with_limits
def test_memory_kill_ends_a_wrapped_command_as_the_command_alone(
    machine: Machine, wrapper: Wrapper
) -> None:
    """The kernel kills one process, or with cgroup v2 all of the container, also the wrapper."""
    all_die = cgroups.hierarchies()[0].is_version_2
    # runc, which starts the container, counts too.
    resources: dict[str, object] = {"memory": {"limit": 32 * MIB}}
    if all_die:
        # As a kubelet sets it.
        resources["unified"] = {"memory.oom.group": "1"}
    script = "dd if=/dev/zero of=/dev/null bs=128M count=1; echo $?; exit 5"
    alone, wrapped = (
        machine.run(command, resources=resources)[:2]
        for command in ([wrapper.shell, "-c", script], wrapper.script(script))
    )
    assert alone == ((137, "") if all_die else (5, "137\n"))
    assert wrapped == alone


def test_linger_uses_less_than_one_mebibyte(machine: Machine) -> None:
    with machine.start(Wrapper("linger").script("echo ready; exec sleep 1000")) as container:
        assert container.read_line() == "ready"
        assert container.status("Name") == "linger"
        assert int(container.status("VmHWM").removesuffix(" kB")) < 1024
