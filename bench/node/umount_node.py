"""A real node whose overlay mounts are volatile or not, and measurements of umounts on it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import yaml

from bench.errors import BenchError
from bench.node.disk_load import fsync_load
from bench.node.umount_pods import RunningInit, UmountPod
from bench.node.umount_trace import UmountTrace, trace_umounts
from tests.support.node.containerd import Containerd
from tests.support.node.node import RealNode
from tests.support.node_config import printed
from webhook.node_config.containerd import DROP_IN

_NAMESPACE = "umount"
_NODE_CONFIG = ("containerd", "--volatile", "--node-selector", "rootfs=volatile")
_RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"

# On the filesystem of the containers' root filesystems, because an umount syncs that filesystem.
_LOAD_DIRECTORY = Path("/var/lib/containerd/load")

# What containerd logs when the shim has not deleted the container within 10 s.
_FAILURE = re.compile("failed to stop container: .*context deadline exceeded")


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured of one init container."""

    # The number of umount2 calls for its root filesystem, and the time in them.
    calls: int
    umount_seconds: float
    # The time between its last output and the first output of the next container.
    gap_seconds: float
    # Lines of containerd's log about an attempt to delete the container that took too long.
    failures: int


class UmountNode:
    """A node with the RuntimeClass of `podsettle node-config containerd --volatile`."""

    def __init__(self, node: RealNode, runtime: Containerd, directory: Path) -> None:
        self._node = node
        self._runtime = runtime
        self._directory = directory
        self._numbers = count()
        self._volatile = False
        node.namespace(_NAMESPACE)
        made = yaml.safe_load(printed(*_NODE_CONFIG, "-o", "runtimeclass"))
        node.cluster.create(_RUNTIME_CLASSES, made)
        self._runtime_class: str = made["metadata"]["name"]
        labels = {"metadata": {"labels": made["scheduling"]["nodeSelector"]}}
        node.cluster.request("PATCH", f"/api/v1/nodes/{node.name}", labels)

    def use_volatile(self, volatile: bool) -> None:
        """Restart containerd with the drop-in or without it."""
        if volatile is self._volatile:
            return
        drop_in = Path(DROP_IN)
        if volatile:
            oldest = ("--oldest", self._runtime.version)
            text = printed(*_NODE_CONFIG, *oldest, "-o", "dropin")
            self._runtime.add_drop_in(drop_in.name, text)
        else:
            self._runtime.remove_drop_in(drop_in.name)
        self._runtime.stop()
        self._runtime.start()
        self._volatile = volatile

    def measure_load(self, inits: int) -> list[Sample]:
        """Measure the init containers of one pod while programs call fsync on the disk."""
        with fsync_load(_LOAD_DIRECTORY):
            return self.measure(inits)

    def measure(self, inits: int) -> list[Sample]:
        """Measure the init containers of one pod, one after the other."""
        samples = []
        with self._pod(inits) as pod, ExitStack() as stack:
            trace: UmountTrace | None = None
            for init in pod.inits:
                running = self._await_written(pod, init)
                trace = trace or stack.enter_context(self._trace(running))
                running.end()
                samples.append(self._sample(pod, init, running, trace))
        return samples

    def measure_delays(self, delays_seconds: Sequence[float]) -> dict[tuple[float, bool], Sample]:
        """Measure a pod for each injected delay of an umount2 call, with and without `volatile`.

        All umounts go on at the same time, each in the shim of its own pod.
        """
        with ExitStack() as stack:
            waiting: dict[tuple[float, bool], tuple[UmountPod, str, RunningInit]] = {}
            for volatile in (False, True):
                # The pods that run already keep their mounts.
                self.use_volatile(volatile)
                for delay in delays_seconds:
                    pod = stack.enter_context(self._pod(1))
                    (init,) = pod.inits
                    waiting[delay, volatile] = pod, init, self._await_written(pod, init)
            traces = {
                key: stack.enter_context(self._trace(running, key[0]))
                for key, (_, _, running) in waiting.items()
            }
            for _, _, running in waiting.values():
                running.end()
            return {
                key: self._sample(pod, init, running, traces[key])
                for key, (pod, init, running) in waiting.items()
            }

    @contextmanager
    def _pod(self, inits: int) -> Iterator[UmountPod]:
        pod = UmountPod(
            self._node.cluster,
            _NAMESPACE,
            f"umount-{next(self._numbers)}",
            image=self._node.images.busybox,
            inits=inits,
            runtime_class=self._runtime_class if self._volatile else None,
        )
        try:
            yield pod
        finally:
            pod.delete()

    def _await_written(self, pod: UmountPod, init: str) -> RunningInit:
        running = pod.await_written(init)
        if running.is_volatile is not self._volatile:
            expected = "volatile" if self._volatile else "not volatile"
            raise BenchError(f"{running.rootfs}: expected a mount that is {expected}")
        return running

    def _trace(
        self, running: RunningInit, delay_seconds: float = 0.0
    ) -> AbstractContextManager[UmountTrace]:
        output = self._directory / f"strace-{next(self._numbers)}"
        return trace_umounts(running.shim, output, delay_seconds)

    def _sample(
        self, pod: UmountPod, init: str, running: RunningInit, trace: UmountTrace
    ) -> Sample:
        gap = pod.await_gap(init)
        calls = trace.calls(running.rootfs)
        if not any(call.succeeded for call in calls):
            raise BenchError(f"strace: no umount of {running.rootfs} in {trace.output}")
        log = self._runtime.log.read_text(errors="replace").splitlines()
        failures = [line for line in log if running.container_id in line and _FAILURE.search(line)]
        return Sample(len(calls), sum(call.seconds for call in calls), gap, len(failures))
