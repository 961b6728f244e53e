"""Faults of a replica's process."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.faults.rig import Rig
from tests.faults.scenario import Loss, Steps, Unavailable, scenario
from tests.support.e2e_pods import simple_pod
from tests.support.factories import review
from tests.support.node import cgroups

_MIB = 1024**2


@scenario("the leader is killed (SIGKILL)", loss=Loss.IN_HAND, seconds=0, short=True)
def sigkill(rig: Rig) -> Steps:
    """Kill the replica that holds the Lease."""
    yield
    rig.leader().replica.signal(signal.SIGKILL)
    yield


@scenario("the leader is stopped for 30 s (SIGSTOP)", loss=Loss.IN_HAND, seconds=30)
def sigstop(rig: Rig) -> Steps:
    """Stop the replica that holds the Lease for longer than the Lease lasts."""
    yield
    stopped = rig.leader().replica
    stopped.signal(signal.SIGSTOP)
    yield
    stopped.signal(signal.SIGCONT)


@scenario(
    "a replica has a memory limit of 128 MiB, and gets 40 reviews of 2.5 MB at a time",
    loss=Loss.IN_HAND,
    seconds=0,
)
def out_of_memory(rig: Rig) -> Steps:
    """Give a replica too little memory for the largest reviews, and send them."""
    rig.prefixes[0] = _limited(rig, 128 * _MIB)
    yield
    pod = rig.replicas[0]
    large = simple_pod("large", "faults", args=["x" * 2_500_000])
    body = json.dumps(review(large)).encode()

    def send(_number: int) -> None:
        if not pod.restarts:
            pod.replica.ask("/mutate?timeout=2s", content=body, seconds=10)

    rig.in_parallel(send, 400, threads=40)
    rig.done = "killed by the kernel" if pod.restarts or pod.replica.has_ended else "not killed"
    yield


def _limited(rig: Rig, limit: int) -> list[str]:
    """Return the beginning of a command whose process has a memory limit."""
    if os.geteuid() != 0:
        raise Unavailable("a memory limit needs root")
    hierarchies = cgroups.hierarchies()
    for hierarchy, path in zip(hierarchies, cgroups.paths(rig.directory.name), strict=True):
        if hierarchy.is_version_2 or "memory" in hierarchy.options.split(","):
            cgroups.create([path])
            rig.stack.callback(_remove, path)
            file = "memory.max" if hierarchy.is_version_2 else "memory.limit_in_bytes"
            (path / file).write_text(str(limit))
            return ["sh", "-c", f'echo $$ > {path}/cgroup.procs && exec "$0" "$@"']
    raise Unavailable("there is no cgroup with the controller `memory`")


def _remove(cgroup: Path) -> None:
    for pid in (cgroup / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    cgroups.remove([cgroup])
