"""Rolling restarts under load with failurePolicy Fail: no creation of a pod fails."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.e2e_pods import is_called, simple_pod
from tests.support.kube.cluster import KubeCluster
from tests.support.long_forms import IS_LONG
from tests.support.needs import path_of
from tests.support.pod_load import creating_pods
from tests.support.process import free_port, start_server
from tests.support.registered_webhook import registered
from tests.support.waiting import TIMEOUT_SECONDS, await_that

pytestmark = pytest.mark.slow

RESTARTS = 20 if IS_LONG else 6
PER_SECOND = 100

POLICY = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: all}
spec: {namespaceSelector: {}, remedies: {postInitSleep: {when: Always}}}
"""

# A Service with readiness probes, in small: it passes connections on as they are, and gives no new
# ones to a replica whose probe fails. Those that are open stay, as they do with a Service.
HAPROXY = """\
global
  stats socket {directory}/haproxy.sock
defaults
  mode tcp
  balance roundrobin
  timeout connect 2s
  timeout client 2m
  timeout server 2m
  timeout check 5s
  default-server check check-ssl verify none fall 3 rise 1
  default-server inter 600ms fastinter 100ms downinter 100ms
frontend webhook
  bind 127.0.0.1:{port}
  default_backend replicas
backend replicas
  option httpchk GET /readyz
  http-check expect status 200
  server a 127.0.0.1:{a}
  server b 127.0.0.1:{b}
"""


class Balancer:
    """A running haproxy."""

    def __init__(self, socket_file: Path, port: int) -> None:
        self._socket = str(socket_file)
        self.port = port

    def up(self) -> set[str]:
        """The replicas that currently get connections."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._socket)
            connection.sendall(b"show stat\n")
            with connection.makefile() as file:
                rows = [line.split(",") for line in file if line.startswith("replicas,")]
        return {row[1] for row in rows if row[1] in "ab" and row[17].startswith("UP")}


@contextmanager
def balancer(directory: Path, a: int, b: int) -> Iterator[Balancer]:
    program = path_of("haproxy")
    port = free_port()
    configuration = directory / "haproxy.cfg"
    configuration.write_text(HAPROXY.format(directory=directory, port=port, a=a, b=b))
    with (
        (directory / "haproxy.log").open("w") as log,
        subprocess.Popen([program, "-db", "-f", configuration], stdout=log, stderr=log) as process,
    ):
        found = Balancer(directory / "haproxy.sock", port)
        try:
            await_that(lambda: (directory / "haproxy.sock").exists() or process.poll(), "it runs")
            assert process.poll() is None, (directory / "haproxy.log").read_text()
            yield found
        finally:
            process.terminate()


class Replica:
    """A `podsettle serve` that can be restarted on its port."""

    def __init__(self, directory: Path, manifests: Path) -> None:
        self.certs = directory
        self.manifests = manifests
        self.port = free_port()
        self._stack = ExitStack()

    def start(self) -> None:
        # More than haproxy takes to notice.
        quiet = ("--drain-quiet", "4s")
        self._stack.enter_context(start_server(self.manifests, self.certs, *quiet, port=self.port))

    def stop(self) -> None:
        """Send SIGTERM and wait for the exit."""
        self._stack.close()


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """A directory with a policy for all pods."""
    found = tmp_path / "manifests"
    found.mkdir()
    (found / "policy.yaml").write_text(POLICY)
    return found


def test_api_server_closes_the_idle_connections_of_a_replica_that_exits(
    cluster: KubeCluster, manifests: Path, tmp_path: Path
) -> None:
    """The API server would lose a review that it sends while podsettle closes the connection."""
    log = cluster.directory / "kube-apiserver.log"

    def closed() -> int:
        text = log.read_text(errors="replace")
        return text.count("Unsolicited response received on idle HTTP channel")

    with ExitStack() as stack:
        replica = stack.enter_context(start_server(manifests, tmp_path / "certs"))
        url = f"{replica.url}/mutate"
        stack.enter_context(registered(cluster, "exiting", url, replica.ca.read_bytes()))
        await_that(lambda: is_called(cluster), "the API server calls podsettle")
        before = closed()
        replica.process.terminate()
        assert replica.process.wait(TIMEOUT_SECONDS) == 0
        await_that(lambda: closed() > before, "the API server has closed its connection")


@pytest.mark.needs("haproxy")
def test_restarts_lose_no_pod_and_leave_none_unsettled(
    cluster: KubeCluster, manifests: Path, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        replicas = {name: Replica(tmp_path / name, manifests) for name in ("a", "b")}
        for replica in replicas.values():
            stack.callback(replica.stop)
            replica.start()
        through = stack.enter_context(balancer(tmp_path, *(r.port for r in replicas.values())))
        await_that(lambda: through.up() == {"a", "b"}, "haproxy has found both replicas")
        bundle = b"".join((r.certs / "ca.crt").read_bytes() for r in replicas.values())
        url = f"https://127.0.0.1:{through.port}/mutate"
        stack.enter_context(registered(cluster, "rolling", url, bundle))
        await_that(lambda: is_called(cluster), "the API server calls podsettle")
        pod = simple_pod("rolling")
        with creating_pods(cluster, pod, per_second=PER_SECOND) as load:
            for number in range(RESTARTS):
                replica = replicas["ab"[number % 2]]
                replica.stop()
                replica.start()
                await_that(lambda: through.up() == {"a", "b"}, "haproxy uses it again")
    print(load)
    assert not load.failed, "\n".join(load.failed)
    assert not load.unsettled, "\n".join(load.unsettled)
    assert load.created > RESTARTS * PER_SECOND
