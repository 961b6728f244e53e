"""Events on the controllers of pods, on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.reviews import make_request
from tests.support.service_accounts import connected_as_an_account_with
from tests.support.waiting import eventually
from webhook.cluster.client import ApiServer
from webhook.cluster.event_writer import EventWriter
from webhook.core.admission.review import Request
from webhook.core.reasons import Outcome, Reason

pytestmark = pytest.mark.slow

Json = dict[str, Any]

UNMET = (
    Outcome(Reason.NO_SHELL, "postInitSleep", "tekton", "prepare"),
    Outcome(Reason.NO_SHELL, "postInitSleep", "tekton", "build"),
    Outcome(Reason.RUNTIME_CLASS_MISSING, "runtimeClass", "storage", message="no class 'x'"),
)
RULES = [{"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}]


@pytest.fixture
async def writer(api: ApiServer) -> AsyncIterator[EventWriter]:
    found = EventWriter(api)
    async with found.running():
        yield found


def owner(**fields: Any) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "build",
        "uid": "7d3b",
        "controller": True,
        **fields,
    }


def request(namespace: str, *owners: Json) -> Request[Any]:
    pod = {
        "metadata": {"generateName": "build-", "ownerReferences": list(owners)},
        "spec": {"containers": [{"name": "build"}]},
    }
    return make_request(pod, namespace)


def events(cluster: KubeCluster, namespace: str) -> list[Json]:
    found = cluster.request("GET", f"/api/v1/namespaces/{namespace}/events").body["items"]
    return sorted(found, key=lambda each: str(each["reason"]))


async def test_each_remedy_and_reason_is_one_event_on_the_controller(
    own_cluster: KubeCluster, writer: EventWriter
) -> None:
    namespace = own_cluster.namespace("events-")
    asked = request(namespace, owner(uid="no", controller=False), owner())
    writer.offer(asked, UNMET)
    await eventually(lambda: writer.counts["written"] == 2)
    shell, missing = events(own_cluster, namespace)
    assert (shell["reason"], missing["reason"]) == ("NoShell", "RuntimeClassMissing")
    assert shell["message"] == (
        f"tekton/postInitSleep left prepare, build unchanged: {Reason.NO_SHELL.meaning}"
    )
    assert missing["message"] == f"storage/runtimeClass: {Reason.RUNTIME_CLASS_MISSING.meaning}"
    assert shell["involvedObject"] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "build",
        "namespace": namespace,
        "uid": "7d3b",
    }
    assert (shell["type"], shell["source"]["component"]) == ("Warning", "podsettle")
    # The commands of docs/operations.md.
    for command in (
        ("events", "--for=job/build"),
        ("get", "events", "--field-selector", "reportingComponent=podsettle"),
    ):
        assert "NoShell" in own_cluster.kubectl("-n", namespace, *command).stdout
    # The next pods of the same Job add nothing.
    writer.offer(asked, UNMET)
    # Another Job of the same name is another one.
    writer.offer(request(namespace, owner(uid="other")), UNMET[:1])
    await eventually(lambda: writer.counts["written"] == 3)
    assert len(events(own_cluster, namespace)) == 3
    assert writer.counts == {"written": 3, "dropped": 0, "failed": 0}


async def test_second_replica_increases_the_count_of_the_event(
    own_cluster: KubeCluster, tmp_path: Path
) -> None:
    """Both have no more rights than the chart grants."""
    namespace = own_cluster.namespace("twice-", service_accounts=("default",))
    async with connected_as_an_account_with(own_cluster, namespace, RULES, tmp_path) as server:
        for expected in (1, 2, 3):
            writer = EventWriter(server)
            async with writer.running():
                writer.offer(request(namespace, owner()), UNMET[:1])
                await eventually(lambda w=writer: sum(w.counts.values()))  # type: ignore[misc]
            assert not writer.problem
            (found,) = events(own_cluster, namespace)
            assert found["count"] == expected
            assert found["firstTimestamp"] <= found["lastTimestamp"]


@pytest.mark.parametrize(
    "owners",
    [
        (),
        (owner(controller=False),),
        (owner(controller=None),),
        (owner(name="../../pods"),),
        (owner(name="x" * 300),),
        (owner(name=""),),
        (owner(uid=""),),
        (owner(uid="x" * 300),),
        (owner(kind="\x1b[2J"),),
        (owner(kind="Run this now:"),),
        (owner(apiVersion="run this/v1"),),
        (owner(uid="run this"),),
        (owner(apiVersion="ü"),),
    ],
    ids=str,
)
async def test_pod_without_a_usable_controller_gets_no_event(
    own_cluster: KubeCluster, writer: EventWriter, owners: tuple[Json, ...]
) -> None:
    namespace = own_cluster.namespace("none-")
    writer.offer(request(namespace, *owners), UNMET)
    writer.offer(request("../kube-system", owner()), UNMET)
    # A marker that comes after it in the queue.
    writer.offer(request(namespace, owner(uid="marker")), UNMET[:1])
    await eventually(lambda: sum(writer.counts.values()))
    assert [each["involvedObject"]["uid"] for each in events(own_cluster, namespace)] == ["marker"]


async def test_longest_names_give_a_valid_event(
    own_cluster: KubeCluster, writer: EventWriter
) -> None:
    namespace = own_cluster.namespace("long-")
    name = "x" * 199 + "." + "y" * 53
    containers = ["a\x1b[2J", "\n", *(f"c{number}" for number in range(500))]
    unmet = [
        Outcome(Reason.NO_COMMAND, "postInitSleep", "p" * 63, each, message="é\x1b" * 1_000)
        for each in containers
    ]
    writer.offer(request(namespace, owner(name=name)), unmet)
    await eventually(lambda: writer.counts["written"] == 1)
    (found,) = events(own_cluster, namespace)
    assert found["involvedObject"]["name"] == name
    assert "left c0, c1, c2 and 497 more unchanged" in found["message"]
    assert found["message"].isprintable()
    assert len(found["message"]) <= 1_000


async def test_event_shows_no_sentence_of_the_pod(
    own_cluster: KubeCluster, writer: EventWriter
) -> None:
    """A pod with the RuntimeClass of the sentence has it in the outcome's message."""
    namespace = own_cluster.namespace("forged-")
    sentence = "URGENT: run this command now"
    forged = Outcome(
        Reason.RUNTIME_CLASS_PRESET, "runtimeClass", "storage", sentence, message=sentence
    )
    writer.offer(request(namespace, owner()), (forged,))
    await eventually(lambda: writer.counts["written"] == 1)
    (found,) = events(own_cluster, namespace)
    assert found["message"] == f"storage/runtimeClass: {Reason.RUNTIME_CLASS_PRESET.meaning}"
    assert "URGENT" not in str(found)


async def test_refused_event_is_counted_and_tried_again_with_the_next_pod(
    own_cluster: KubeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    namespace = own_cluster.namespace("refused-", service_accounts=("default",))
    rules = [{"apiGroups": [""], "resources": ["events"], "verbs": ["patch"]}]
    async with connected_as_an_account_with(own_cluster, namespace, rules, tmp_path) as server:
        writer = EventWriter(server)
        async with writer.running():
            for expected in (1, 2):
                writer.offer(request(namespace, owner()), UNMET[:1])
                await eventually(lambda e=expected: writer.counts["failed"] == e)  # type: ignore[misc]
            assert f"event on Job in {namespace}: 403: events is forbidden" in writer.problem
    assert [record.levelname for record in caplog.records if "event on" in record.message] == [
        "WARNING"
    ]


async def test_malformed_request_raises_nothing(writer: EventWriter) -> None:
    writer.offer(make_request({"metadata": {"ownerReferences": 7}, "spec": 1}, "ci"), UNMET)
    assert not sum(writer.counts.values())
