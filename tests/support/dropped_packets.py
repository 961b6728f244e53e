"""A watch whose packets are dropped, by the kernel: run in a network namespace of its own.

Prints what happened, one word a line.
"""

from __future__ import annotations

import asyncio
import subprocess

import msgspec

from tests.support.kube.cluster import KubeCluster
from tests.support.waiting import eventually
from webhook.cluster.client import ApiServer
from webhook.cluster.reflector import Reflector
from webhook.cluster.watch import WatchLimits
from webhook.tasks import supervise

LIMITS = WatchLimits(answer_seconds=2, silent_seconds=0.5)


def _drop(port: int) -> None:
    """Drop what arrives for, and from, a port of this namespace."""
    for side in ("--dport", "--sport"):
        subprocess.run(
            ["iptables", "-A", "INPUT", "-p", "tcp", side, str(port), "-j", "DROP"], check=True
        )


def _pass() -> None:
    subprocess.run(["iptables", "-F", "INPUT"], check=True)


def _name(item: msgspec.Raw) -> str:
    return str(msgspec.json.decode(item)["metadata"]["name"])


async def _watch(cluster: KubeCluster) -> None:
    async with await ApiServer.connect(kubeconfig=str(cluster.kubeconfig)) as server:
        namespaces = Reflector(server, "/api/v1/namespaces", _name, lambda: None, limits=LIMITS)
        async with supervise(namespaces.run):
            before = cluster.namespace("before-")
            await eventually(lambda: before in namespaces.objects)
            print("watching", flush=True)
            _drop(cluster.port)
            await eventually(lambda: namespaces.problem)
            print("noticed", flush=True)
            _pass()
            after = cluster.namespace("after-")
            await eventually(lambda: after in namespaces.objects and not namespaces.problem)
            print("resumed", flush=True)


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with KubeCluster.start() as started:
        asyncio.run(_watch(started))
