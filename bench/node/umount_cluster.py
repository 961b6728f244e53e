"""A cluster of two nodes with slow disks, one of them with volatile mounts, and podsettle."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import yaml

from bench.errors import BenchError
from bench.node.umount_clock import UmountClock
from bench.node.umount_log import count_failures
from bench.node.umount_pods import TIMEOUT_SECONDS, RunningInit, UmountPod
from tests.support.factories import policy_document
from tests.support.node.containerd import Containerd
from tests.support.node.node import RealNode
from tests.support.node.node_paths import SECOND
from tests.support.node.release import install_podsettle
from tests.support.node.slow_disk import SlowDisk, slow_disk
from tests.support.node_config import printed
from tests.support.policy_objects import POLICIES
from tests.support.process import podsettle
from tests.support.waiting import await_that
from webhook.node_config.containerd import DROP_IN

UNSETTLED, SETTLED = "unsettled", "settled"
_LABEL = {"rootfs": "volatile"}
_NODE_CONFIG = ("containerd", "--volatile", "--node-selector", "rootfs=volatile")
_RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
_TAINT = {"key": "rootfs", "value": "volatile", "effect": "NoSchedule"}
_SYMPTOM = "containerd-slow-umount"
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured of one pod."""

    name: str
    # The time in umount2 calls of its shim.
    umount_seconds: float
    # The time between the end of the init container and the start of the next container.
    gap_seconds: float
    # The time between the end of the init container and a status that shows the end.
    shown_running_seconds: float
    # Lines of containerd's log about an attempt to delete the container that took too long.
    failures: int


@dataclass(frozen=True, slots=True)
class _Place:
    """A node with its runtime and disk, and the namespace whose pods have to be on it."""

    node: RealNode
    runtime: Containerd
    disk: SlowDisk
    namespace: str


@contextmanager
def umount_cluster(line: str) -> Iterator[UmountCluster]:
    """Start the nodes with a release line of containerd, and install podsettle and its policy."""
    plain, volatile = Containerd(line), Containerd(line, paths=SECOND)
    oldest = ("--oldest", volatile.version)
    volatile.add_drop_in(Path(DROP_IN).name, printed(*_NODE_CONFIG, *oldest, "-o", "dropin"))
    with ExitStack() as stack:
        disks = [stack.enter_context(slow_disk(each.paths.data)) for each in (plain, volatile)]
        node = stack.enter_context(RealNode.start(plain))
        second = stack.enter_context(node.with_second(volatile))
        runtime_class = yaml.safe_load(printed(*_NODE_CONFIG, *oldest, "-o", "runtimeclass"))
        _reserve(second, runtime_class)
        install_podsettle(node)
        _cover(node, runtime_class["metadata"]["name"])
        yield UmountCluster(
            _Place(node, plain, disks[0], UNSETTLED), _Place(second, volatile, disks[1], SETTLED)
        )


class UmountCluster:
    """A running cluster, and measurements in it."""

    def __init__(self, plain: _Place, volatile: _Place) -> None:
        self._places = (plain, volatile)
        self._numbers = count()
        # Both nodes pull the images before their disks become slow.
        with self._pods(1) as pods:
            self._measure(pods)

    def measure(self, mebibytes: int, rounds: int) -> dict[str, list[Sample]]:
        """Measure an unsettled and a settled pod at a time, whose init containers write so much.

        Raise BenchError if `podsettle scan` does not find exactly the pods with a gap of a minute.
        """
        samples: dict[str, list[Sample]] = {UNSETTLED: [], SETTLED: []}
        with ExitStack() as stack:
            for _ in range(rounds):
                with ExitStack() as limits:
                    for place in self._places:
                        limits.enter_context(place.disk.limited())
                    # They stay until the scan.
                    pods = stack.enter_context(self._pods(mebibytes))
                    for place, sample in zip(self._places, self._measure(pods), strict=True):
                        samples[place.namespace].append(sample)
            self._check_scan(samples)
        return samples

    @contextmanager
    def _pods(self, mebibytes: int) -> Iterator[Sequence[UmountPod]]:
        number, node = next(self._numbers), self._places[0].node
        pods = [
            UmountPod(node, place.namespace, f"pod-{number}", mebibytes) for place in self._places
        ]
        try:
            yield pods
        finally:
            for pod in pods:
                pod.delete()

    def _measure(self, pods: Sequence[UmountPod]) -> list[Sample]:
        inits = [
            self._await_written(place, pod) for place, pod in zip(self._places, pods, strict=True)
        ]
        with ExitStack() as stack:
            clocks = [stack.enter_context(UmountClock.of(init.shim)) for init in inits]
            for pod, init in zip(pods, inits, strict=True):
                pod.end_init(init)
            deadline = time.monotonic() + TIMEOUT_SECONDS
            # Each call notes what the status shows, so it is called for all pods.
            while [pod for pod in pods if not pod.has_started()]:
                if time.monotonic() > deadline:
                    raise BenchError(f"{pods[0].name}: not started after {TIMEOUT_SECONDS:.0f} s")
                time.sleep(_POLL_SECONDS)
        return [
            Sample(
                pod.name,
                clock.seconds,
                pod.gap_seconds,
                pod.shown_running_seconds,
                count_failures(place.runtime.log.read_text(errors="replace"), init.container_id),
            )
            for place, pod, clock, init in zip(self._places, pods, clocks, inits, strict=True)
        ]

    def _await_written(self, place: _Place, pod: UmountPod) -> RunningInit:
        if (found := pod.await_node()) != place.node.name:
            raise BenchError(
                f"pod {place.namespace}/{pod.name} is on node {found}, expected {place.node.name}"
            )
        init = pod.await_written(place.node, place.runtime)
        if init.is_volatile is not (place.namespace == SETTLED):
            raise BenchError(
                f"pod {place.namespace}/{pod.name}: its mount is "
                f"{'' if init.is_volatile else 'not '}volatile"
            )
        return init

    def _check_scan(self, samples: dict[str, list[Sample]]) -> None:
        expected = {
            f"{namespace}/{sample.name}"
            for namespace, measured in samples.items()
            for sample in measured
            if sample.gap_seconds >= 60
        }
        found = self._scan()
        if found != expected:
            raise BenchError(f"podsettle scan found {sorted(found)}, expected {sorted(expected)}")

    def _scan(self) -> set[str]:
        """Return the pods that `podsettle scan` finds."""
        kubeconfig = self._places[0].node.cluster.kubeconfig
        done = podsettle("scan", f"--kubeconfig={kubeconfig}", "-o", "json")
        if done.returncode not in (0, 1):
            raise BenchError(f"podsettle scan: {done.stderr}")
        symptoms = {each["id"]: each for each in json.loads(done.stdout)["symptoms"]}
        objects = {each["evidence"][0]["object"] for each in symptoms[_SYMPTOM]["findings"]}
        return {each.removeprefix("pod ") for each in objects}


def _reserve(node: RealNode, runtime_class: dict[str, object]) -> None:
    """Let only pods of the RuntimeClass run on a node, and create the class."""
    scheduling = runtime_class["scheduling"]
    assert isinstance(scheduling, dict)
    tolerated = {**_TAINT, "operator": "Equal"}
    node.cluster.create(
        _RUNTIME_CLASSES,
        {**runtime_class, "scheduling": {**scheduling, "tolerations": [tolerated]}},
    )
    change = {
        "metadata": {"labels": scheduling["nodeSelector"]},
        "spec": {"taints": [_TAINT]},
    }
    answer = node.cluster.request("PATCH", f"/api/v1/nodes/{node.name}", change)
    assert answer.status == 200, answer.body


def _cover(node: RealNode, runtime_class: str) -> None:
    """Create both namespaces and the policy of the report's page, and wait for its effect."""
    node.namespace(UNSETTLED)
    node.namespace(SETTLED, _LABEL)
    remedies = {"runtimeClass": {"name": runtime_class}}
    selector = {"matchLabels": _LABEL}
    policy = policy_document("volatile-rootfs", remedies=remedies, namespaceSelector=selector)
    node.cluster.create(POLICIES, policy)
    containers = [{"name": "only", "image": node.images.busybox}]
    probe = {
        "metadata": {"generateName": "probe-", "namespace": SETTLED},
        "spec": {"containers": containers},
    }

    def is_settled() -> bool:
        made = node.cluster.create_pod(probe, dry_run=True).body
        return bool(made.get("spec", {}).get("runtimeClassName") == runtime_class)

    await_that(is_settled, f"podsettle sets the RuntimeClass of pods in {SETTLED}")
