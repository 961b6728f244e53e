"""A steady load of pod creations on a real API server, and what became of each.

    with creating_pods(cluster, pod, per_second=100) as load:
        ...                            # restart, rotate, break things
    assert load.failed == []
    assert load.unsettled == []

The pods are dry runs: they pass admission like any other and are not kept.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.support.kube.cluster import KubeCluster

_TIMEOUT_SECONDS = 60
_SETTLED = b'"podsettle.dev/applied":'


class Creation(NamedTuple):
    """A creation that has ended."""

    ended: float
    """When, by the monotonic clock."""
    seconds: float
    failed: bool
    settled: bool


class Load:
    """What came of the creations so far."""

    def __init__(self) -> None:
        self.created = 0
        """Pods that the API server took, settled or not."""
        self.failed: list[str] = []
        """Why each of the others was not created."""
        self.unsettled: list[str] = []
        """When a pod was created without a remedy, and the warnings that came with it."""
        self.seconds = 0.0
        """How long it went on; known at the end."""
        self.slowest = 0.0
        """Seconds that the slowest creation took."""
        self._creations: list[Creation] = []
        self._lock = threading.Lock()
        self._over = threading.Event()

    def take_creations(self) -> list[Creation]:
        """Return the creations that have ended since the last call."""
        with self._lock:
            creations, self._creations = self._creations, []
        return creations

    @property
    def per_second(self) -> float:
        """The rate that was reached; known at the end."""
        return (self.created + len(self.failed)) / self.seconds

    def __str__(self) -> str:
        return (
            f"{self.created} created in {self.seconds:.1f} s ({self.per_second:.0f}/s), "
            f"{len(self.failed)} failed, {len(self.unsettled)} unsettled, "
            f"slowest {self.slowest:.2f} s"
        )


@contextmanager
def creating_pods(
    cluster: KubeCluster, *pods: dict[str, Any], per_second: float, threads: int = 20
) -> Iterator[Load]:
    """Create pods until the block ends, one after the other and again, each at its time.

    A thread waits for an answer before it takes its next turn, so that `threads` creations are
    under way at the most, and the rate falls where the API server cannot keep up.
    """
    load = Load()
    turns = _Turns(1 / per_second, pods)
    workers = [_Worker(cluster, turns, load) for _ in range(threads)]
    start = time.monotonic()
    for worker in workers:
        worker.start()
    try:
        yield load
    finally:
        load._over.set()
        for worker in workers:
            worker.join()
        load.seconds = time.monotonic() - start


class _Turns:
    """Moments at even distances, each given away once with the path and the body of a pod."""

    def __init__(self, distance: float, pods: Sequence[dict[str, Any]]) -> None:
        self._distance = distance
        self._requests = cycle([_request(pod) for pod in pods])
        self._next = time.monotonic()
        self._lock = threading.Lock()

    def take(self) -> tuple[float, str, bytes]:
        with self._lock:
            # What could not be sent in time is not made up for.
            self._next = max(self._next + self._distance, time.monotonic() - 0.1)
            return self._next, *next(self._requests)


def _request(pod: dict[str, Any]) -> tuple[str, bytes]:
    namespace = pod["metadata"].get("namespace", "default")
    return f"/api/v1/namespaces/{namespace}/pods?dryRun=All", json.dumps(pod).encode()


class _Worker(threading.Thread):
    def __init__(self, cluster: KubeCluster, turns: _Turns, load: Load) -> None:
        super().__init__(name="creating pods", daemon=True)
        self._headers = {
            "Authorization": f"Bearer {cluster.token}",
            "Content-Type": "application/json",
        }
        address = urlsplit(cluster.url)
        self._connection = http.client.HTTPSConnection(
            address.hostname or "",
            address.port,
            timeout=_TIMEOUT_SECONDS,
            context=ssl.create_default_context(cafile=cluster.ca_file),
        )
        self._turns = turns
        self._load = load

    def run(self) -> None:
        while True:
            at, path, body = self._turns.take()
            if self._load._over.wait(max(0.0, at - time.monotonic())):
                break
            self._create(path, body)
        self._connection.close()

    def _create(self, path: str, sent: bytes) -> None:
        load = self._load
        start = time.monotonic()
        problem, body, warning = "", b"", None
        try:
            self._connection.request("POST", path, sent, self._headers)
            answer = self._connection.getresponse()
            body, warning = answer.read(), answer.getheader("Warning")
            if answer.status != 201:
                problem = f"{answer.status} {body.decode(errors='replace')[:500]}"
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            problem = repr(error)
        ended = time.monotonic()
        settled = not problem and _SETTLED in body
        with load._lock:
            load.slowest = max(load.slowest, ended - start)
            load._creations.append(Creation(ended, ended - start, bool(problem), settled))
            if problem:
                load.failed.append(f"{ended:.2f}: {problem}")
                return
            load.created += 1
            if not settled:
                load.unsettled.append(f"{ended:.2f}: {warning}")
