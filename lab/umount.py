"""Init containers that hang in umounts on a slow disk, on real nodes with containerd.

containerd does not record the end of an init container while the umount of its root filesystem
writes to the disk. Of two nodes with slow disks one has the configuration of `podsettle node-config
containerd --volatile`, and podsettle's policy sends pods there.

Times come from the files of the pods' logs, where containerd gives each line a time in nanoseconds.
A pod's status has whole seconds only.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

import click
import yaml

from lab.cluster import (
    NAMESPACE,
    RUNTIME_CLASSES,
    delete_pod,
    make_pod,
    policy,
    running_podsettle,
)
from lab.report import LabError, Outcome, Row, Table, experiment, values
from tests.support.node.containerd import Containerd
from tests.support.node.node import RealNode
from tests.support.node.node_paths import SECOND
from tests.support.node.pods import states
from tests.support.node.shim import first_process, is_volatile, shim_process
from tests.support.node.slow_disk import WRITE_MEBIBYTES_PER_SECOND, SlowDisk, slow_disk
from tests.support.node_config import printed
from tests.support.process import podsettle
from tests.support.waiting import await_that
from tools.build import announce
from webhook.node_config.containerd import DROP_IN

UNSETTLED, SETTLED = "unsettled", "settled"
LATE_SECONDS = 10
"""containerd's own limit for the umount. Without the defect, the next container follows in 2 s."""
# A gap of so many seconds is a finding of `podsettle scan`.
SCAN_SECONDS = 60
_SYMPTOM = "containerd-slow-umount"
_NODE_CONFIG = ("containerd", "--volatile", "--node-selector", "rootfs=volatile")
_TAINT = {"key": "rootfs", "value": "volatile", "effect": "NoSchedule"}
# An umount of 256 MiB takes a minute, and containerd's next attempt follows up to a minute later.
TIMEOUT_SECONDS = 600.0
_POLL_SECONDS = 0.01
_UMOUNT2 = {"aarch64": "39", "x86_64": "166"}
# `sleep` runs in the background, so that the shell handles SIGTERM at once.
_INIT_SCRIPT = (
    "echo began; trap 'echo ended; exit 0' TERM; "
    "dd if=/dev/zero of=/written bs=1M count={mebibytes} 2>/dev/null; "
    "echo written; sleep 1000000 & wait"
)
_MAIN_SCRIPT = "echo began; sleep 1000000"
# The shim has not deleted the container within 10 s. From containerd 2.3 on, a retry ends before
# the deletion: it reads the state first, for which a shim in an umount takes longer than 2 s.
_FAILURE = re.compile("failed to (stop|load task for) container: .*context deadline exceeded")


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured of one pod."""

    name: str
    umount_seconds: float
    """The time in umount2 calls of its shim, which is read every 10 ms: shorter calls are 0."""
    gap_seconds: float
    """From the last output of the init container until the first of the next container."""
    shown_running_seconds: float
    """From the end of the init container until a status that shows the end."""
    failures: int
    """Lines of containerd's log about an attempt to delete the container that took too long."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node with its runtime and disk, and the policy that sends pods there, if any."""

    name: str
    node: RealNode
    runtime: Containerd
    disk: SlowDisk
    policy: str = ""


class UmountPod:
    """A pod whose init container has written to its root filesystem, and waits for SIGTERM."""

    def __init__(self, place: Place, mebibytes: int) -> None:
        self._place, image = place, place.node.images.busybox
        scripts = {"init": _INIT_SCRIPT.format(mebibytes=mebibytes), "main": _MAIN_SCRIPT}
        init, main = (
            {"name": name, "image": image, "command": ["sh", "-c", script]}
            for name, script in scripts.items()
        )
        pod = make_pod(place.name, [main], [init], policy=place.policy)
        metadata = place.node.create_pod(pod)["metadata"]
        self.name: str = metadata["name"]
        directory = f"{NAMESPACE}_{self.name}_{metadata['uid']}"
        self._logs = place.node.kubelet.pod_logs / directory
        self._shown_ended: float | None = None

    def await_written(self) -> None:
        """Wait until the init container has written its data. Its pod must be on the node."""
        node = self._place.node
        pod = node.await_pod(NAMESPACE, self.name, lambda pod: pod["spec"].get("nodeName"))
        if (found := pod["spec"]["nodeName"]) != node.name:
            raise LabError(f"pod {self.name} is on node {found}, expected {node.name}")
        await_that(lambda: self._line("init", "written"), f"{self.name} writes", TIMEOUT_SECONDS)
        # The status follows the log.
        pod = node.await_pod(NAMESPACE, self.name, lambda pod: "running" in states(pod)["init"])
        (status,) = pod["status"]["initContainerStatuses"]
        self._container = status["containerID"].removeprefix("containerd://")
        paths = self._place.runtime.paths
        if is_volatile(self._container, paths) is not bool(self._place.policy):
            raise LabError(f"pod {self.name}: its mount is volatile, or is not, against its policy")
        self.shim = shim_process(self._container, paths)

    def end_init(self) -> None:
        """Tell the process of the init container to end."""
        os.kill(first_process(self._container, self._place.runtime.paths), signal.SIGTERM)

    def has_started(self) -> bool:
        """Whether the main container has started. Notes when the status shows the init's end."""
        if self._shown_ended is None:
            pod = self._place.node.pod(NAMESPACE, self.name)
            if "terminated" in states(pod)["init"]:
                self._shown_ended = time.time()
        return self._shown_ended is not None and self._line("main", "began") is not None

    def sample(self, umount_seconds: float) -> Sample:
        """Return what was measured, once the main container has started."""
        ended, began = self._line("init", "ended"), self._line("main", "began")
        assert ended
        assert began
        assert self._shown_ended
        log = self._place.runtime.log.read_text(errors="replace")
        failures = count_failures(log, self._container)
        return Sample(self.name, umount_seconds, began - ended, self._shown_ended - ended, failures)

    def _line(self, container: str, text: str) -> float | None:
        """Return the time of a line in a container's log, or None."""
        log = self._logs / container / "0.log"
        for line in log.read_text().splitlines() if log.exists() else ():
            moment, _, rest = line.partition(" ")
            if rest == f"stdout F {text}":
                # Python reads microseconds; containerd writes nanoseconds.
                return datetime.fromisoformat(moment).timestamp()
        return None


class UmountClock:
    """Samples in the background whether a thread of a process is in a system call.

    The kernel writes the filesystem back after umount2 itself, on the way back to the program. A
    tracepoint at the call's end does not see that, but /proc/PID/task/TID/syscall shows the call
    until the thread is back in the program.
    """

    def __init__(self, process: int) -> None:
        self._tasks = Path(f"/proc/{process}/task")
        self._call = _UMOUNT2[platform.machine()]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.seconds = 0.0
        """The time so far. It is 0 for calls that end between two samples."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _sample(self) -> None:
        before, was_inside = time.monotonic(), False
        while not self._end.wait(_POLL_SECONDS):
            now, is_inside = time.monotonic(), self._is_inside()
            if was_inside and is_inside:
                self.seconds += now - before
            before, was_inside = now, is_inside

    def _is_inside(self) -> bool:
        found = []
        # The process and its threads may end at any time.
        with suppress(FileNotFoundError, ProcessLookupError):
            for task in self._tasks.iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):
                    found.append((task / "syscall").read_text().split()[0])
        return self._call in found


def count_failures(log: str, container_id: str) -> int:
    """Return how many of containerd's attempts to delete a container took too long."""
    lines = log.splitlines()
    return sum(container_id in line and bool(_FAILURE.search(line)) for line in lines)


@click.command("umount")
@click.option("--short", is_flag=True, help="One release of containerd, and a pod of each kind.")
@experiment
def umount(short: bool) -> Outcome:
    """Time how long pods hang in umounts on a slow disk, unsettled and settled."""
    # The umount of 16 MiB stays below containerd's limit. That of 256 MiB makes a gap of more than
    # a minute, which `podsettle scan` finds.
    lines, rounds, sizes = (("2.4",), 1, (16, 256)) if short else (("2.4", "1.7"), 3, (16, 64, 256))
    table = Table("Init containers on a slow disk")
    every: dict[str, list[Sample]] = {UNSETTLED: [], SETTLED: []}
    missing: list[str] = []
    for line in lines:
        with _cluster(line) as places:
            # Both nodes pull the images before their disks become slow.
            with _measured(places, 1, is_slow=False):
                pass
            for size in sizes:
                announce(f"containerd {line}: {size} MiB")
                with ExitStack() as stack:
                    # The pods stay until the scan.
                    pairs = [stack.enter_context(_measured(places, size)) for _ in range(rounds)]
                    missing += _unlike_scan(places[0].node, [each for one in pairs for each in one])
                for place, samples in zip(places, zip(*pairs, strict=True), strict=True):
                    every[place.name] += samples
                    table.rows.append(_row(place, size, samples))
    facts = {"disk": f"{WRITE_MEBIBYTES_PER_SECOND} MiB/s", "pods in each row": str(rounds)}
    return Outcome([table], facts, [*unproven(every[UNSETTLED], every[SETTLED]), *missing])


def _row(place: Place, mebibytes: int, samples: Sequence[Sample]) -> Row:
    late = sum(each.gap_seconds > LATE_SECONDS for each in samples)
    return {
        "containerd": place.runtime.version,
        "written": f"{mebibytes} MiB",
        "pods": place.name,
        "umount": values([each.umount_seconds for each in samples], "s"),
        "gap": values([each.gap_seconds for each in samples], "s"),
        "Running after the end": values([each.shown_running_seconds for each in samples], "s"),
        "failures": values([each.failures for each in samples]),
        "late pods": values([late]),
    }


def unproven(plain: Sequence[Sample], settled: Sequence[Sample]) -> list[str]:
    """Return what the pods do not show of the defect and of its cure."""
    found = []
    late = [each for each in plain if each.gap_seconds > LATE_SECONDS]
    if 2 * len(late) < len(plain):
        found.append(f"{len(late)} of {len(plain)} unsettled pods were late: expected half of them")
    if others := sum(not each.failures for each in late):
        found.append(f"{others} unsettled pods were late without a failure in containerd's log")
    if hanging := sum(each.gap_seconds > LATE_SECONDS for each in settled):
        found.append(f"{hanging} settled pods were late: expected none")
    return found


@contextmanager
def _cluster(line: str) -> Iterator[tuple[Place, Place]]:
    """Start the nodes with a release line of containerd, and podsettle with its policy."""
    plain, volatile = Containerd(line), Containerd(line, paths=SECOND)
    config = (*_NODE_CONFIG, "--oldest", volatile.version, "-o")
    volatile.add_drop_in(Path(DROP_IN).name, printed(*config, "dropin"))
    runtime_class = yaml.safe_load(printed(*config, "runtimeclass"))
    # Only pods of the RuntimeClass run on its node.
    scheduling = runtime_class["scheduling"]
    scheduling["tolerations"] = [{**_TAINT, "operator": "Equal"}]
    node_change = {
        "metadata": {"labels": scheduling["nodeSelector"]},
        "spec": {"taints": [_TAINT]},
    }
    settles = policy(SETTLED, {"runtimeClass": {"name": runtime_class["metadata"]["name"]}})
    with ExitStack() as stack:
        disks = [stack.enter_context(slow_disk(each.paths.data)) for each in (plain, volatile)]
        node = stack.enter_context(RealNode.start(plain))
        second = stack.enter_context(node.with_second(volatile))
        node.cluster.create(RUNTIME_CLASSES, runtime_class)
        path = f"/api/v1/nodes/{second.name}"
        assert node.cluster.request("PATCH", path, node_change).status == 200
        stack.enter_context(running_podsettle(node, [settles]))
        yield (
            Place(UNSETTLED, node, plain, disks[0]),
            Place(SETTLED, second, volatile, disks[1], SETTLED),
        )


@contextmanager
def _measured(
    places: Sequence[Place], mebibytes: int, *, is_slow: bool = True
) -> Iterator[list[Sample]]:
    """Measure a pod on each node at the same time, whose init containers write so much."""
    with ExitStack() as limits:
        for place in places if is_slow else ():
            limits.enter_context(place.disk.limited())
        pods = [UmountPod(place, mebibytes) for place in places]
        for pod in pods:
            pod.await_written()
        clocks = [limits.enter_context(UmountClock(pod.shim)) for pod in pods]
        for pod in pods:
            pod.end_init()
        hanging = list(pods)

        def have_started() -> bool:
            hanging[:] = [pod for pod in hanging if not pod.has_started()]
            return not hanging

        await_that(have_started, "the main containers start", TIMEOUT_SECONDS)
    try:
        yield [pod.sample(clock.seconds) for pod, clock in zip(pods, clocks, strict=True)]
    finally:
        for pod in pods:
            delete_pod(places[0].node, pod.name)


def _unlike_scan(node: RealNode, samples: Sequence[Sample]) -> list[str]:
    """Return what `podsettle scan` finds else than exactly the pods with a gap of a minute."""
    expected = {each.name for each in samples if each.gap_seconds >= SCAN_SECONDS}
    done = podsettle("scan", f"--kubeconfig={node.cluster.kubeconfig}", "-o", "json")
    if done.returncode not in (0, 1):
        raise LabError(f"podsettle scan: {done.stderr}")
    symptoms = {each["id"]: each for each in json.loads(done.stdout)["symptoms"]}
    objects = (each["evidence"][0]["object"] for each in symptoms[_SYMPTOM]["findings"])
    found = {each.rpartition("/")[2] for each in objects}
    differ = f"podsettle scan found {sorted(found)}, expected {sorted(expected)}"
    return [differ] if found != expected else []
