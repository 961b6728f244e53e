"""Test for leaks of memory, files and threads after many failures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.factories import policy_document
from tests.support.kube.cluster import KubeCluster
from tests.support.policy_objects import POLICIES, install_crd
from tests.support.process import RunningServer, process_status, start_server
from tests.support.reviews import PODS, load_pod, review
from tests.support.waiting import await_that

pytestmark = pytest.mark.slow

BAD_DAYS = 4
REVIEWS = 1000


@pytest.fixture
def own() -> Iterator[KubeCluster]:
    with KubeCluster.start() as cluster:
        install_crd(cluster)
        cluster.create(POLICIES, policy_document("everywhere", remedies={"postInitSleep": {}}))
        yield cluster


class Held(NamedTuple):
    """What a process holds."""

    threads: int
    files: int
    kibibytes: int

    @classmethod
    def by(cls, server: RunningServer) -> Held:
        pid = server.process.pid
        threads, memory = process_status(pid, "Threads"), process_status(pid, "VmRSS")
        files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return cls(int(threads), files, int(memory.removesuffix(" kB")))


def test_repeated_failures_leak_no_memory_files_or_threads(
    own: KubeCluster, tmp_path: Path
) -> None:
    with start_server(None, tmp_path, kubeconfig=own.kubeconfig) as server:
        a_bad_day(own, server)
        first = Held.by(server)
        for _ in range(BAD_DAYS):
            a_bad_day(own, server)
        last = Held.by(server)
        # A connection of the last client may take a moment to end.
        await_that(lambda: Held.by(server).files <= first.files, "as few files are open as before")
    # A pool may grow to its bound. A leak of one thread a day is more.
    assert last.threads < first.threads + BAD_DAYS
    # What a leak of one pod for each review would hold, or of the objects that were seen.
    assert last.kibibytes - first.kibibytes < BAD_DAYS * REVIEWS * 4


def a_bad_day(cluster: KubeCluster, server: RunningServer) -> None:
    """The API server dies, comes back without its memory, and people go on creating things."""
    with server.client() as client:
        cluster.kill_apiserver()

        def notes() -> list[str]:
            checks = client.get("/readyz?verbose").json()["checks"]
            return [each["note"] for each in checks if each["note"]]

        await_that(lambda: notes() != [], "the loss is told")
        assert client.get("/readyz").text == "ok"
        cluster.start_apiserver()
        for number in range(20):
            name = cluster.namespace("day-", labels={"team": str(number)})
        cluster.request("DELETE", f"/api/v1/namespaces/{name}")
        await_that(lambda: notes() == [], "it has caught up")
        pod = load_pod(next(path for path in PODS if path.stem.startswith("tekton")))
        body = json.dumps(review(pod, namespace="default"))
        for _ in range(REVIEWS):
            assert client.post("/mutate", content=body, headers=JSON).status_code == 200


JSON = {"Content-Type": "application/json"}
