"""Tests of manifests of any size: a long List of kubectl is read from its file, item by item."""

from __future__ import annotations

import json
import os
import threading
from io import BytesIO
from pathlib import Path

import msgspec
import pytest
import yaml

from tests.support.factories import Json, namespace, policy_document
from webhook.cluster import manifests
from webhook.cluster.manifest_loader import ManifestsError, files_of, read_manifest
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
    decoded = map(msgspec.json.decode, found.objects.get(("", kind), ()))
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
        assert msgspec.json.decode(found.objects["", "Pod"][0]) == pods[0]
        (event,) = found.objects["", "Event"]
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
    assert len(found.objects["", "Pod"]) == 30


INVALID = "kind: SettlePolicy\napiVersion: podsettle.dev/v1alpha1\nmetadata: {name: a}\nspec: {}\n"


def document(name: str) -> str:
    return yaml.safe_dump(policy_document(name))


POLICY_TEXT = document("a")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the current directory, so that problems name it `f`."""
    monkeypatch.chdir(tmp_path)
    return Path("f")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("kind: List\nitems:\n", []),
        ("kind: List\nitems: []\n", []),
        ("kind: List\nitems: null\n", []),
        ("apiVersion: management.cattle.io/v3\nkind: Node\nmetadata: {name: machine-1}\n", []),
        (
            yaml.safe_dump({
                "kind": "List",
                "items": [policy_document("a"), {"kind": "Namespace", **namespace("ci")}],
            }),
            [("SettlePolicy", "a"), ("Namespace", "ci")],
        ),
    ],
)  # fmt: skip
def test_objects_of_a_list_and_no_kinds_of_other_groups_are_loaded(
    text: str, names: list[tuple[str, str]], file: Path
) -> None:
    file.write_text(text)
    found, problems = read_manifest(file)
    assert [(each.kind, each.name) for each in found] == names
    assert problems == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\n", "f:1: is not a Kubernetes object: no kind"),
        ("- a\n", "f:1: is not a Kubernetes object: no kind"),
        ("kind: 5\n", "f:1: is not a Kubernetes object: no kind"),
        ("x: 1\n---\n\nkind: [a]\n", "f:1: is not a Kubernetes object: no kind"),
        (
            "kind: List\nitems:\n  - kind: Namespace\n    metadata: {name: ci}\n  - a: 1\n",
            "f:5: items[1]: is not a Kubernetes object: no kind",
        ),
        (
            "kind: Namespace\nmetadata: {}\n",
            "f:1: Namespace: Object missing required field `name` - at `$.metadata`",
        ),
        (
            "kind: Node\nmetadata: {name: n1, labels: {a: 1}}\n",
            "f:1: Node: Expected `str | null`, got `int` - at `$.metadata.labels[...]`",
        ),
        (
            "kind: RuntimeClass\nmetadata: {name: n1}\noverhead: x\n",
            "f:1: RuntimeClass: Expected `object | null`, got `str` - at `$.overhead`",
        ),
        (
            "apiVersion: podsettle.dev/v1alpha1\nkind: Settle\n",
            "f:2: kind: is 'Settle'; the only kind of podsettle.dev is SettlePolicy",
        ),
        ("a: [\n", "f:2: not YAML: "),
        ("a: 1\na: 2\n", "f:2: duplicate key 'a'"),
        ("kind: Settlepolicy\nmetadata: {name: a1}\n", "did you mean SettlePolicy?"),
        (POLICY_TEXT.replace("spec:", '"[key]": 1\nspec:', 1), "unknown key"),
        *((f"kind: List\nitems: {items}\n", "f:") for items in ("5", "true", "text", "{a: b}")),
        # After an error in the YAML, nothing of the text counts.
        (f"{POLICY_TEXT}---\nkind: 5\n---\na: {{\n", "not YAML"),
    ],
)
def test_problem_has_the_file_the_line_and_the_cause(text: str, problem: str, file: Path) -> None:
    file.write_text(text)
    found, problems = read_manifest(file)
    assert problem in str(problems[0])
    assert {each.kind for each in found} <= {"Namespace"}


def test_all_documents_of_a_text_report_their_problems(file: Path) -> None:
    text = document("a") + "---\n" + INVALID + "---\nkind: Namespace\n---\n" + document("b")
    file.write_text(text)
    found, problems = read_manifest(file)
    assert [f.name for f in found] == ["a", "b"]
    assert len(problems) == 2


def test_missing_file_is_a_problem(file: Path) -> None:
    found, (problem,) = read_manifest(file)
    assert found == []
    assert str(problem) == "f: No such file or directory"


def test_name_that_no_file_can_have_is_a_problem() -> None:
    with pytest.raises(ManifestsError, match="x: File name too long"):
        files_of([Path(300 * "x")])
