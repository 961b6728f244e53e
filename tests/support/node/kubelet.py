"""A real kubelet, whose serving certificate the cluster's signer issues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.kube.cluster import Json, KubeCluster
from tests.support.kube.server import Server
from tests.support.node.network import NODE_ADDRESS
from tests.support.node.node_paths import USUAL, NodePaths
from tools.build import tool

PORT = 10250
ROOT = USUAL.kubelet
# By default /usr/libexec/kubernetes/kubelet-plugins/volume/exec, a directory of the machine, which
# the kubelet makes.
VOLUME_PLUGINS = ROOT / "volume-plugins"


class Kubelet:
    """The kubelet of a node. `configuration` is written at each start."""

    def __init__(
        self,
        cluster: KubeCluster,
        node: str,
        runtime_socket: Path,
        changes: Mapping[str, Any] | None = None,
        paths: NodePaths = USUAL,
    ) -> None:
        self.node = node
        self.log = paths.logs / "kubelet.log"
        self.pod_logs = paths.pod_logs
        self.configuration: Json = _configuration(cluster, runtime_socket) | dict(changes or {})
        self.configuration["podLogsDir"] = str(paths.pod_logs)
        self._path = cluster.directory / f"kubelet-{node}.json"
        self._server = Server(
            tool("kubelet"),
            [
                f"--config={self._path}",
                f"--kubeconfig={cluster.kubeconfig_of(f'system:node:{node}', 'system:nodes')}",
                f"--hostname-override={node}",
                f"--node-ip={NODE_ADDRESS}",
                f"--root-dir={paths.kubelet}",
                f"--cert-dir={paths.kubelet / 'pki'}",
            ],
            self.log,
        )

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._server.running

    def start(self) -> None:
        """Start the kubelet. The node becomes ready later."""
        self._path.write_text(json.dumps(self.configuration, indent=2))
        self._server.start()

    def stop(self) -> None:
        """Stop the kubelet. The containers go on."""
        self._server.stop()

    def restart(self, **changes: Any) -> None:
        """Stop the kubelet, and start it with other values of its configuration."""
        self.stop()
        self.configuration |= changes
        self.start()


def _configuration(cluster: KubeCluster, runtime_socket: Path) -> Json:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(cluster.ca_file)},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "clusterDNS": [NODE_ADDRESS],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{runtime_socket}",
        # A machine with a full disk or little memory still runs the tests.
        "evictionHard": {
            "imagefs.available": "0%",
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
        },
        # From Kubernetes 1.35 on, the kubelet refuses cgroup v1 by default.
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "port": PORT,
        "serverTLSBootstrap": True,
        "volumePluginDir": str(VOLUME_PLUGINS),
    }
