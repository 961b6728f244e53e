"""The programs of a control plane beside the API server, and kube-proxy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.kube.cluster import KubeCluster
from tests.support.kube.server import Server
from tests.support.node.kubelet import VOLUME_PLUGINS
from tests.support.node.network import POD_CIDR
from tools.build import tool


@contextmanager
def running_control_plane(cluster: KubeCluster, logs: Path) -> Iterator[None]:
    """Run kube-controller-manager and kube-scheduler until the block ends."""
    with ExitStack() as stack:
        for program, flags in (
            (tool("kube-controller-manager"), _controller_manager_flags(cluster)),
            (tool("kube-scheduler"), _scheduler_flags(cluster)),
        ):
            server = Server(program, flags, logs / f"{program.name}.log")
            server.start()
            stack.callback(server.kill)
        yield


@contextmanager
def running_proxy(cluster: KubeCluster, node: str, logs: Path) -> Iterator[None]:
    """Run kube-proxy until the block ends. Its rules stay."""
    program = tool("kube-proxy")
    path = cluster.directory / "kube-proxy.json"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                "kind": "KubeProxyConfiguration",
                "clientConnection": {
                    "kubeconfig": str(cluster.kubeconfig_of("system:kube-proxy")),
                },
                "clusterCIDR": POD_CIDR,
                "hostnameOverride": node,
                # The limits of connection tracking are the machine's, not the namespace's.
                "conntrack": {
                    "maxPerCore": 0,
                    "min": 0,
                    "tcpEstablishedTimeout": "0s",
                    "tcpCloseWaitTimeout": "0s",
                },
                "iptables": {
                    # Pods on one bridge answer each other directly, past the translation.
                    "masqueradeAll": True,
                    "minSyncPeriod": "0s",
                },
                "mode": "iptables",
            }
        )
    )
    server = Server(program, [f"--config={path}"], logs / "kube-proxy.log")
    server.start()
    try:
        yield
    finally:
        server.kill()


def _controller_manager_flags(cluster: KubeCluster) -> list[str]:
    return [
        f"--kubeconfig={cluster.kubeconfig_of('system:kube-controller-manager')}",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={cluster.service_account_key_file}",
        f"--root-ca-file={cluster.ca_file}",
        f"--cluster-signing-cert-file={cluster.ca_file}",
        f"--cluster-signing-key-file={cluster.ca_key_file}",
        f"--flex-volume-plugin-dir={VOLUME_PLUGINS}",
        "--leader-elect=false",
        "--secure-port=0",
        # A busy machine delays a kubelet's heartbeats.
        "--node-monitor-grace-period=5m",
    ]


def _scheduler_flags(cluster: KubeCluster) -> list[str]:
    return [
        f"--kubeconfig={cluster.kubeconfig_of('system:kube-scheduler')}",
        "--leader-elect=false",
        "--secure-port=0",
    ]
