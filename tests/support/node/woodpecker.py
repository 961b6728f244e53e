"""Woodpecker's own client, which runs a pipeline on a cluster without a server."""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.support.kube.cluster import Json
from tests.support.node.node import TIMEOUT_SECONDS, RealNode

VOLUMES = "/api/v1/persistentvolumes"
_VOLUME_SIZE = "1Gi"
# They would make the client look for a cluster around it, or for a server.
_LEFT_OUT = ("KUBERNETES_SERVICE_HOST", "WOODPECKER_")


@dataclass(frozen=True)
class PipelineRun:
    """How a pipeline has ended."""

    exit_code: int
    output: str
    """Both streams of the client."""


@dataclass(frozen=True)
class Woodpecker:
    """A client whose pipelines run in one namespace of a node's cluster."""

    program: Path
    node: RealNode
    namespace: str
    directory: Path
    """Where the pipelines' files are written."""

    def run(self, name: str, count: int, *, steps: int = 1) -> list[PipelineRun]:
        """Run pipelines at once, and return how they ended. Each step prints a line."""
        with ThreadPoolExecutor(count) as pool:
            runs = [pool.submit(self._run, f"{name}-{index}", steps) for index in range(count)]
            return [each.result() for each in runs]

    def _run(self, name: str, steps: int) -> PipelineRun:
        self.node.cluster.create(VOLUMES, _volume(f"{self.namespace}-{name}"))
        home = self.directory / name
        home.mkdir()
        path = home / "pipeline.yaml"
        path.write_text(json.dumps(pipeline(self.node.images.busybox, steps)))
        command = (
            *(str(self.program), "exec", "--backend-engine", "kubernetes", "--local=false"),
            *("--repo-path", str(home), str(path)),
        )
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(_LEFT_OUT)
        }
        environment |= {
            "HOME": str(home),
            "KUBECONFIG": str(self.node.cluster.kubeconfig),
            "WOODPECKER_BACKEND_K8S_NAMESPACE": self.namespace,
            "WOODPECKER_BACKEND_K8S_STORAGE_RWX": "false",
            "WOODPECKER_BACKEND_K8S_VOLUME_SIZE": _VOLUME_SIZE,
            "WOODPECKER_DISABLE_UPDATE_CHECK": "true",
        }
        done = subprocess.run(
            command,
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS + steps * 30,
            check=False,
        )
        return PipelineRun(done.returncode, done.stdout)


def pipeline(image: str, steps: int) -> Json:
    """Return a pipeline of short steps, one after the other."""
    return {
        "skip_clone": True,
        "steps": [
            {"name": f"step{index}", "image": image, "commands": [f"echo built {index}"]}
            for index in range(steps)
        ],
    }


def _volume(name: str) -> Json:
    """Return a volume for the claim that the client makes, which names no storage class."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": _VOLUME_SIZE},
            "hostPath": {"path": f"/var/lib/{name}", "type": "DirectoryOrCreate"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }
