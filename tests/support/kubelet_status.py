"""Pods whose status a test writes in place of a kubelet, and podsettle commands in background."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tests.support.kube.cluster import KubeCluster
from tests.support.process import PODSETTLE
from tests.support.waiting import TIMEOUT_SECONDS, await_that

RUNNING = {"running": {"startedAt": "2026-05-30T10:00:00Z"}}


def terminated(code: int, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """Return the state of a container that has ended."""
    reason = reason or ("Completed" if code == 0 else "Error")
    finished = {"finishedAt": "2026-05-30T10:01:00Z", "startedAt": "2026-05-30T10:00:00Z"}
    return {"terminated": {"exitCode": code, "reason": reason, **finished, **more}}


def waiting(reason: str) -> dict[str, Any]:
    """Return the state of a container that does not run yet."""
    return {"waiting": {"reason": reason, "message": ""}}


class Pod:
    """A pod on an API server without a kubelet."""

    def __init__(
        self,
        cluster: KubeCluster,
        namespace: str,
        name: str = "step-1",
        containers: tuple[str, ...] = ("step",),
        init: tuple[str, ...] = (),
        sidecars: tuple[str, ...] = (),
        ephemeral: tuple[str, ...] = (),
        node: str | None = None,
        existing: bool = False,
    ) -> None:
        self.namespace, self.name = namespace, name
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self._init = (*init, *sidecars)
        self._ephemeral = ephemeral
        if existing:
            return
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "containers": [{"name": each, "image": "busybox"} for each in containers],
            "initContainers": [
                *({"name": each, "image": "busybox"} for each in init),
                *(
                    {"name": each, "image": "busybox", "restartPolicy": "Always"}
                    for each in sidecars
                ),
            ],
        }
        if node is not None:
            spec["nodeName"] = node
        pod = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
        made = cluster.create_pod(pod)
        assert made.status == 201, made.body
        if ephemeral:
            debug = [
                {"name": each, "image": "busybox", "terminationMessagePolicy": "File"}
                for each in ephemeral
            ]
            patch = {"spec": {"ephemeralContainers": debug}}
            answer = cluster.request("PATCH", f"{self._path}/ephemeralcontainers", patch)
            assert answer.status == 200, answer.body

    @property
    def exists(self) -> bool:
        """Whether the pod exists at the API server."""
        return self._cluster.request("GET", self._path).status == 200

    def say(self, phase: str, states: dict[str, Any] | None = None, **more: Any) -> None:
        """Write the phase and the states of containers in one patch, as the kubelet does."""
        statuses = [
            {
                "name": name,
                "state": state,
                "lastState": more.get("last", {}),
                "ready": False,
                "restartCount": more.get("restarts", 0),
                "image": "busybox",
                "imageID": "",
                "containerID": more.get("run", ""),
            }
            for name, state in sorted((states or {}).items())
        ]
        status = {
            "phase": phase,
            "containerStatuses": [
                each
                for each in statuses
                if each["name"] not in self._init and each["name"] not in self._ephemeral
            ],
            "initContainerStatuses": [each for each in statuses if each["name"] in self._init],
            "ephemeralContainerStatuses": [
                each for each in statuses if each["name"] in self._ephemeral
            ],
        }
        answer = self._cluster.request("PATCH", f"{self._path}/status", {"status": status})
        assert answer.status == 200, answer.body

    def delete(self) -> None:
        """Delete the pod without a grace period."""
        answer = self._cluster.request("DELETE", self._path, {"gracePeriodSeconds": 0})
        assert answer.status == 200, answer.body


class Command:
    """A running podsettle command. `running` starts it."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        self._process = process
        self._directory = directory

    @property
    def stdout(self) -> bytes:
        """The standard output so far."""
        return (self._directory / "stdout").read_bytes()

    @property
    def stderr(self) -> str:
        """The standard error so far."""
        return (self._directory / "stderr").read_text()

    def await_word(self, text: str, times: int = 1) -> None:
        """Wait until the standard error contains the text this many times."""

        def has_text() -> bool:
            over = self._process.poll() is not None
            assert self.stderr.count(text) >= times or not over, self.stderr
            return self.stderr.count(text) >= times

        await_that(has_text, f"it says {text!r}")

    def await_output(self, data: bytes) -> None:
        """Wait until the standard output contains the data."""
        await_that(lambda: data in self.stdout, f"it writes {data[:40]!r}")

    def end(self) -> int:
        """Wait for the end of the command, and return its exit code."""
        return self._process.wait(TIMEOUT_SECONDS)


@contextmanager
def running(
    kubeconfig: Path,
    directory: Path,
    *arguments: str,
    stdout: int | None = None,
    program: str = PODSETTLE,
) -> Iterator[Command]:
    """Run a command while the block runs. Its output goes to a file, or to `stdout`."""
    directory.mkdir(exist_ok=True)
    with (directory / "stdout").open("wb") as out, (directory / "stderr").open("wb") as err:
        process = subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out if stdout is None else stdout,
            stderr=err,
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        )
    try:
        yield Command(process, directory)
    finally:
        process.kill()
        process.wait()


Run = Callable[..., AbstractContextManager[Command]]
