"""What the controllers of a cluster do for a release: pods, and the files of a mounted Secret.

The API server reaches the processes through these pods, as `podsettle doctor` does.
"""

from __future__ import annotations

import base64
import signal
from pathlib import Path

from tests.support.helm import NAMESPACE
from tests.support.helm_release import OWN, RELEASE, Installation, Replica
from tests.support.kube.cluster import Json
from tests.support.waiting import await_that

_DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"


class ReplicaController:
    """Keeps as many processes, each with its pod, as the Deployment of a release wants.

    `certificates` is the directory that the processes read their certificate from, if a Secret is
    mounted there.
    """

    def __init__(self, installation: Installation, certificates: Path | None = None) -> None:
        self._installation = installation
        self._certificates = certificates
        self._template: Json = {}
        self._crashed: list[str] = []
        """The names of the pods whose processes were killed."""

    def reconcile(self) -> None:
        """Do what the controllers would do until the Deployment is as it should be."""
        self.mount()
        deployment = self._installation.get(_DEPLOYMENT)
        template = deployment["spec"]["template"]
        if template != self._template:
            self._template = template
            for name in self._crashed:
                self._installation.delete_pod(name)
            self._crashed.clear()
            self._remove(*self._installation.replicas)
        wanted = deployment["spec"]["replicas"]
        self._remove(*self._installation.replicas[wanted:])
        while len(self._installation.replicas) < wanted:
            self._add()
        for replica in self._installation.replicas:
            await_that(replica.is_ready, "a replica is ready", seconds=60)

    def restart(self) -> None:
        """Replace every replica by a new one."""
        self._template = {}
        self.reconcile()

    def mount(self) -> None:
        """Write the files of the mounted Secret, as the kubelet does."""
        if self._certificates is None:
            return
        (secret,) = (
            volume["secret"]["secretName"]
            for volume in self._installation.get(_DEPLOYMENT)["spec"]["template"]["spec"]["volumes"]
            if "secret" in volume
        )
        self._certificates.mkdir(exist_ok=True)
        # The key comes first, because the certificate without its key is not loaded.
        data = self._installation.get(f"{OWN}/secrets/{secret}")["data"]
        for name in ("tls.key", "tls.crt"):
            (self._certificates / name).write_bytes(base64.b64decode(data[name]))

    def crash(self) -> None:
        """Kill every process. Its pod stays, and is not ready."""
        for replica in list(self._installation.replicas):
            self._installation.replicas.remove(replica)
            replica.end(signal.SIGKILL)
            self._installation.withdraw(replica)
            self._installation.write_status(replica, ready=False)
            self._crashed.append(replica.pod_name)

    def _add(self) -> None:
        mounted = [f"--certs-dir={self._certificates}"] if self._certificates else []
        replica = self._installation.start(*mounted)
        self._installation.create_pod(replica)

    def _remove(self, *replicas: Replica) -> None:
        self._installation.retire(*replicas)
        for replica in replicas:
            self._installation.delete_pod(replica.pod_name)
