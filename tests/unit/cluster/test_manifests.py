"""Tests of manifests of any size: a long List of kubectl is read from its file, item by item."""

from __future__ import annotations

import json
import os
import threading
from io import BytesIO
from pathlib import Path

import msgspec
import pytest

from tests.support.factories import Json
from webhook.cluster import manifests
from webhook.cluster.manifests import Manifests, read_manifests

POLICY: Json = {
    "apiVersion": "podsettle.dev/v1alpha1",
    "kind": "SettlePolicy",
    "metadata": {"name": "ci"},
    "spec": {"namespaceSelector": {}, "remedies": {"kubeletGate": {}}},
}
NODE: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}}
EVENT: Json = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "},\n  }", "metadata": {}}
INNER: Json = {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "in"}}]}
KINDLESS: Json = {"metadata": {"name": "x"}}


def pod(number: int) -> Json:
    metadata = {"name": f"p{number}", "annotations": {"text": '"\n        },\n        {"'}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def printed(*items: Json) -> bytes:
    """A List as `kubectl get -o json` prints it."""
    found = {"apiVersion": "v1", "items": items, "kind": "List"}
    return json.dumps({**found, "metadata": {"resourceVersion": ""}}, indent=4).encode() + b"\n"


@pytest.fixture(params=[8 * 1024 * 1024, 0], ids=["in memory", "in its file"])
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "_MAX_READ_BYTES", request.param)
    monkeypatch.setattr(manifests, "_MAX_ITEM_BYTES", 64 * 1024)
    monkeypatch.setattr(manifests, "_CHUNK_BYTES", 97)


def read(path: Path, content: bytes) -> Manifests:
    path.write_bytes(content)
    return read_manifests([path], BytesIO())


def names(found: Manifests, kind: str) -> list[str]:
    decoded = map(msgspec.json.decode, found.objects.get(kind, ()))
    return [each["metadata"].get("name", "") for each in decoded]


def test_second_object_is_a_problem_if_it_differs_or_is_a_policy(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_bytes(printed(NODE, POLICY))
    labelled = {**NODE, "metadata": {"name": "worker-1", "labels": {"disk": "ssd"}}}
    (tmp_path / "c.json").write_bytes(printed(labelled))
    problems = read_manifests([tmp_path], BytesIO()).problems
    assert [each.message.partition(";")[0] for each in problems] == [
        "a second SettlePolicy named 'ci'",
        "a second Node named 'worker-1'",
    ]


@pytest.mark.usefixtures("limit")
def test_objects_of_a_list_are_found_wherever_they_are_kept(tmp_path: Path) -> None:
    pods = [pod(number) for number in range(20)]
    content = printed(POLICY, *pods[:9], INNER, EVENT, *pods[9:], NODE)
    (tmp_path / "dump.json").write_bytes(content)
    for found in (
        read(tmp_path / "dump.json", content),
        read_manifests([Path("-")], BytesIO(content)),
    ):
        expected = [f"p{number}" for number in range(20)]
        assert names(found, "Pod") == [*expected[:9], "in", *expected[9:]]
        # Objects are read several times.
        assert msgspec.json.decode(found.objects["Pod"][0]) == pods[0]
        (event,) = found.objects["Event"]
        assert msgspec.json.decode(event)["message"] == EVENT["note"]
        assert [node.name for node in found.view.nodes.all] == ["worker-1"]
        assert [each.metadata.name for each in found.view.policies.documents] == ["ci"]
        assert found.problems == ()


@pytest.mark.usefixtures("limit")
def test_problem_of_an_item_has_its_line(tmp_path: Path) -> None:
    wrong = {**POLICY, "spec": {"remedies": {"unknown": {}}}}
    content = printed(pod(1), wrong, KINDLESS)
    found = read(tmp_path / "dump.json", content)
    lines = content.decode().splitlines()
    problems = {(each.line, each.path) for each in found.problems}
    assert (
        lines.index('                    "unknown": {}') + 1,
        found.problems[0].path,
    ) in problems
    assert any("no kind" in str(each) for each in found.problems)


LISTED = printed(POLICY, pod(1), pod(2))


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize(
    "content",
    [
        *(LISTED[:-cut] for cut in (2, 30, 120, 300)),
        LISTED.replace(b'"kind": "Pod"', b'"kind": @'),
    ],
    ids=len,
)
def test_list_that_is_cut_off_or_has_an_item_that_is_not_json_is_not_used(
    content: bytes, tmp_path: Path
) -> None:
    found = read(tmp_path / "dump.json", content)
    assert found.unreadable
    assert len(found.view.policies) == 0


def test_item_that_is_longer_than_an_object_can_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "_MAX_READ_BYTES", 0)
    monkeypatch.setattr(manifests, "_MAX_ITEM_BYTES", 100)
    found = read(tmp_path / "dump.json", printed(pod(1), {**pod(2), "spec": "x" * 1_000}))
    assert "longer than an object can be" in str(found.unreadable[0])


@pytest.mark.usefixtures("limit")
def test_pipe_is_read_as_a_file(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    content = printed(POLICY, *map(pod, range(30)))
    writer = threading.Thread(target=path.write_bytes, args=[content])
    writer.start()
    found = read_manifests([path], BytesIO())
    writer.join()
    assert len(found.objects["Pod"]) == 30
