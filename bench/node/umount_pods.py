"""Pods whose init containers write to their root filesystem and end when they are told to.

Times come from the files in /var/log/pods, where containerd gives each line a time in nanoseconds.
A pod's status has whole seconds only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench.errors import BenchError
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.node.shim import (
    first_process,
    is_volatile,
    root_filesystem,
    shim_process,
)

# What an init container leaves in its root filesystem, as a package installation does.
WRITTEN_MEBIBYTES = 64

# A pod starts within seconds, but the longest injected umount holds it up for minutes.
TIMEOUT_SECONDS = 600.0
_POLL_SECONDS = 0.05

_LOGS = Path("/var/log/pods")

_MAIN = "main"
# `sleep` runs in the background, so that the shell handles SIGTERM at once.
_INIT_SCRIPT = (
    "echo began; trap 'echo ended; exit 0' TERM; "
    f"dd if=/dev/zero of=/written bs=1M count={WRITTEN_MEBIBYTES} 2>/dev/null; "
    "echo written; sleep 1000000 & wait"
)
_MAIN_SCRIPT = "echo began; sleep 1000000"


@dataclass(frozen=True, slots=True)
class RunningInit:
    """An init container that has written its data and waits for SIGTERM."""

    container_id: str
    pid: int
    shim: int

    @property
    def rootfs(self) -> str:
        """The mount point of the container's root filesystem."""
        return str(root_filesystem(self.container_id))

    @property
    def is_volatile(self) -> bool:
        """Whether the root filesystem's mount is volatile."""
        return is_volatile(self.container_id)

    def end(self) -> None:
        """Tell the container's process to end."""
        os.kill(self.pid, signal.SIGTERM)


class UmountPod:
    """A pod with some init containers on this node."""

    def __init__(
        self, cluster: KubeCluster, namespace: str, name: str, *, image: str, inits: int,
        runtime_class: str | None,
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self.inits = [f"init-{number}" for number in range(inits)]
        made = cluster.create_pod(
            {
                "metadata": {"name": name, "namespace": namespace},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "initContainers": [
                        _container(each, image, _INIT_SCRIPT) for each in self.inits
                    ],
                    "containers": [_container(_MAIN, image, _MAIN_SCRIPT)],
                    **({"runtimeClassName": runtime_class} if runtime_class else {}),
                },
            }
        )
        if made.status != 201:
            raise BenchError(f"pod {name}: not created: {made.body.get('message', made.body)}")
        uid = made.body["metadata"]["uid"]
        self._logs = _LOGS / f"{namespace}_{name}_{uid}"

    def await_written(self, init: str) -> RunningInit:
        """Wait until an init container has written its data."""
        self._await(lambda: self._line(init, "written"), f"{init} has written its data")
        # The status follows the log.
        self._await(lambda: bool(self._container_id(init)), f"the status has {init}")
        container_id = self._container_id(init)
        process, shim = first_process(container_id), shim_process(container_id)
        return RunningInit(container_id, process, shim)

    def await_gap(self, init: str) -> float:
        """Wait for the next container. Return the seconds between the end of this one and it."""
        following = [*self.inits, _MAIN][self.inits.index(init) + 1]
        began = self._await(lambda: self._line(following, "began"), f"{following} runs")
        ended = self._line(init, "ended")
        if ended is None:
            raise BenchError(f"{init} did not end as it was told to")
        return began - ended

    def delete(self) -> None:
        """Delete the pod, and wait until its containers are gone."""
        self._cluster.request("DELETE", self._path)
        self._await(lambda: self._cluster.request("GET", self._path).status == 404, "it is deleted")

    def _pod(self) -> Json:
        return self._cluster.request("GET", self._path).body

    def _container_id(self, init: str) -> str:
        """Return the ID of an init container, which is empty until the status has it."""
        for status in self._pod()["status"].get("initContainerStatuses", ()):
            if status["name"] == init:
                return str(status.get("containerID", "")).removeprefix("containerd://")
        return ""

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

    def _await(self, condition: Callable[[], float | bool | None], what: str) -> float:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (result := condition()):
            if time.monotonic() > deadline:
                status = self._pod().get("status")
                raise BenchError(f"{self._path}: waited in vain until {what}: {status}")
            time.sleep(_POLL_SECONDS)
        return float(result)


def _container(name: str, image: str, script: str) -> Json:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
    }
