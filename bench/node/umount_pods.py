"""Pods whose init container writes to its root filesystem and ends when it is told to.

Times come from the files of the pods' logs, where containerd gives each line a time in nanoseconds.
A pod's status has whole seconds only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from bench.errors import BenchError
from tests.support.kube.cluster import Json
from tests.support.node.containerd import Containerd
from tests.support.node.node import RealNode
from tests.support.node.node_paths import NodePaths
from tests.support.node.shim import first_process, is_volatile, shim_process

# An umount of 256 MiB takes a minute, and containerd's next attempt follows up to a minute later.
TIMEOUT_SECONDS = 600.0
_POLL_SECONDS = 0.05

_INIT, _MAIN = "init", "main"
# `sleep` runs in the background, so that the shell handles SIGTERM at once.
_INIT_SCRIPT = (
    "echo began; trap 'echo ended; exit 0' TERM; "
    "dd if=/dev/zero of=/written bs=1M count={mebibytes} 2>/dev/null; "
    "echo written; sleep 1000000 & wait"
)
_MAIN_SCRIPT = "echo began; sleep 1000000"


@dataclass(frozen=True, slots=True)
class RunningInit:
    """An init container that has written its data and waits for SIGTERM."""

    container_id: str
    process: int
    shim: int
    is_volatile: bool
    """Whether its root filesystem's mount is volatile."""


class UmountPod:
    """A pod that is created as a user creates it: without a RuntimeClass and without a node."""

    def __init__(self, node: RealNode, namespace: str, name: str, mebibytes: int) -> None:
        self.name = name
        self._cluster = node.cluster
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self._ended: float | None = None
        self._shown_ended: float | None = None
        script = _INIT_SCRIPT.format(mebibytes=mebibytes)
        image = node.images.busybox
        self._created = node.create_pod(
            {
                "metadata": {"name": name, "namespace": namespace},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "initContainers": [_container(_INIT, image, script)],
                    "containers": [_container(_MAIN, image, _MAIN_SCRIPT)],
                },
            }
        )

    def await_node(self) -> str:
        """Return the name of the node, once the pod has one."""
        self._await(lambda: bool(self._pod()["spec"].get("nodeName")), "it has a node")
        return str(self._pod()["spec"]["nodeName"])

    def await_written(self, node: RealNode, runtime: Containerd) -> RunningInit:
        """Wait until the init container has written its data on this node."""
        uid = self._created["metadata"]["uid"]
        self._logs = node.kubelet.pod_logs / f"{self._namespace}_{self.name}_{uid}"
        self._await(lambda: self._line(_INIT, "written") is not None, "it has written its data")
        # The status follows the log.
        self._await(lambda: bool(self._init_status().get("containerID")), "it has a container ID")
        container_id = str(self._init_status()["containerID"]).removeprefix("containerd://")
        return _running_init(container_id, runtime.paths)

    def end_init(self, running: RunningInit) -> None:
        """Tell the process of the init container to end."""
        os.kill(running.process, signal.SIGTERM)
        self._await(lambda: self._line(_INIT, "ended") is not None, "the init container ends")
        self._ended = self._line(_INIT, "ended")

    def has_started(self) -> bool:
        """Whether the main container has started. Notes when the status shows the init's end."""
        if self._shown_ended is None and "terminated" in self._init_status().get("state", {}):
            self._shown_ended = time.time()
        return self._shown_ended is not None and self._line(_MAIN, "began") is not None

    @property
    def gap_seconds(self) -> float:
        """The time between the last output of the init container and the first of the main one."""
        began = self._line(_MAIN, "began")
        assert began is not None
        assert self._ended is not None
        return began - self._ended

    @property
    def shown_running_seconds(self) -> float:
        """The time between the end of the init container and a status that shows it."""
        assert self._shown_ended is not None
        assert self._ended is not None
        return self._shown_ended - self._ended

    def delete(self) -> None:
        """Delete the pod, and wait until its containers are gone."""
        self._cluster.request("DELETE", self._path)
        self._await(lambda: self._cluster.request("GET", self._path).status == 404, "it is deleted")

    def _pod(self) -> Json:
        return self._cluster.request("GET", self._path).body

    def _init_status(self) -> Json:
        """Return the status of the init container, which is empty at first."""
        found: list[Json] = self._pod()["status"].get("initContainerStatuses", [])
        return found[0] if found else {}

    def _line(self, container: str, text: str) -> float | None:
        """Return the time of a line in a container's log, or None."""
        log = self._logs / container / "0.log"
        if not log.exists():
            return None
        for line in log.read_text().splitlines():
            moment, _, rest = line.partition(" ")
            if rest == f"stdout F {text}":
                # Python reads microseconds; containerd writes nanoseconds.
                return datetime.fromisoformat(moment).timestamp()
        return None

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                status = self._pod().get("status")
                raise BenchError(f"{self._path}: waited in vain until {what}: {status}")
            time.sleep(_POLL_SECONDS)


def _running_init(container_id: str, paths: NodePaths) -> RunningInit:
    return RunningInit(
        container_id,
        first_process(container_id, paths),
        shim_process(container_id, paths),
        is_volatile(container_id, paths),
    )


def _container(name: str, image: str, script: str) -> Json:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
    }
