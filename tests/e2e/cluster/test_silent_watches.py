"""Silent watches: of a cluster without changes, and over a broken connection.

The limits are seconds here instead of minutes; see WatchLimits.
"""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.paths import ROOT
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import eventually
from webhook.cluster.client import ApiServer
from webhook.cluster.decode import read_runtime_class
from webhook.cluster.reflector import Reflector
from webhook.cluster.watch import WatchLimits
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.tasks import supervise

pytestmark = pytest.mark.slow

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def runtime_classes(server: ApiServer, limits: WatchLimits) -> Reflector[RuntimeClassInfo]:
    return Reflector(server, CLASSES, read_runtime_class, lambda: None, limits=limits)


def create_class(cluster: KubeCluster, name: str) -> None:
    cluster.create(CLASSES, {"metadata": {"name": name}, "handler": "fast"})


async def test_half_an_hour_without_events_is_no_error(
    own_cluster: KubeCluster, tcp_proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """There are as many silent watches as with the default limits in 30 minutes."""
    silences = 30 * 60 / WatchLimits().silent_seconds
    async with await ApiServer.connect() as server:
        classes = runtime_classes(server, WatchLimits(silent_seconds=0.1))
        async with supervise(classes.run):
            await eventually(lambda: classes.synced.is_set())
            before = tcp_proxy.accepted

            def is_over() -> bool:
                assert not classes.problem
                return tcp_proxy.accepted - before >= silences

            await eventually(is_over)
            create_class(own_cluster, "after-silence")
            await eventually(lambda: "after-silence" in classes.objects)
    assert warnings(caplog) == []


async def test_change_is_seen_after_the_connection_of_the_watch_broke(
    own_cluster: KubeCluster, tcp_proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """New connections work, so no request fails, and a probe would succeed."""
    async with await ApiServer.connect() as server:
        classes = runtime_classes(server, WatchLimits(silent_seconds=1))
        async with supervise(classes.run):
            await eventually(lambda: classes.synced.is_set())
            # A watch reports this object, so the watch is open.
            create_class(own_cluster, "before-break")
            await eventually(lambda: "before-break" in classes.objects)
            tcp_proxy.freeze()
            create_class(own_cluster, "after-break")
            await eventually(lambda: "after-break" in classes.objects)
    assert warnings(caplog) == []


async def test_api_server_that_stops_answering_is_an_error(
    own_cluster: KubeCluster, tcp_proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """Its kernel still accepts connections, and acknowledges what is sent."""
    async with await ApiServer.connect() as server:
        classes = runtime_classes(server, WatchLimits(answer_seconds=2, silent_seconds=0.5))
        async with supervise(classes.run):
            await eventually(lambda: classes.synced.is_set() and not classes.problem)
            tcp_proxy.frozen = True
            tcp_proxy.freeze()
            await eventually(lambda: classes.problem)
            assert "no answer in time; the last state stays in force" in warnings(caplog)[-1]
            tcp_proxy.frozen = False
            create_class(own_cluster, "after-stop")
            await eventually(lambda: "after-stop" in classes.objects and not classes.problem)


async def test_proxy_that_closes_silent_watches_is_no_error(
    own_cluster: KubeCluster, tcp_proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    async with await ApiServer.connect() as server:
        classes = runtime_classes(server, WatchLimits(stable_seconds=0))
        async with supervise(classes.run):
            await eventually(lambda: classes.synced.is_set())
            for number in range(3):
                # A watch reports this object, so the watch is open.
                create_class(own_cluster, f"cut-{number}")
                await eventually(lambda: f"cut-{number}" in classes.objects)  # noqa: B023
                tcp_proxy.cut()
            create_class(own_cluster, "after-cuts")
            await eventually(lambda: "after-cuts" in classes.objects)
    assert warnings(caplog) == []


_IN_A_NETWORK_NAMESPACE = ("unshare", "--net")


@pytest.mark.needs("unshare", "ip", "iptables")
def test_watch_whose_packets_are_dropped_fails_and_resumes() -> None:
    """Neither end receives a FIN or a reset, and new connections hang."""
    done = subprocess.run(
        [*_IN_A_NETWORK_NAMESPACE, sys.executable, "-m", "tests.support.dropped_packets"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.stdout.split() == ["watching", "noticed", "resumed"], done.stderr
    assert "no answer in time" in done.stderr


def test_default_limits_find_a_broken_connection_within_90_seconds() -> None:
    limits = WatchLimits()
    assert limits.silent_seconds + limits.answer_seconds < 90
    # The API server sends a bookmark about every 60 s.
    assert limits.silent_seconds > 65
