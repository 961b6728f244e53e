"""Tests of objects as podsettle keeps them, with values that thousands of objects share."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest

from tests.support.factories import Json, namespace, node
from webhook.cluster.decode import read_namespace, read_node


def value_of(label: str, **labels: str) -> str:
    """Return the value of a label after the JSON document was decoded."""
    document = json.loads(json.dumps(namespace("ci", labels)))
    return read_namespace(document).labels[label]


def test_frequent_label_values_are_shared_and_the_others_are_not_kept() -> None:
    tier, team = value_of("tier", tier="a tier"), value_of("team", team="team 0")
    for number in range(1, 5_000):
        assert value_of("team", team=f"team {number}") == f"team {number}"
        assert value_of("tier", tier="a tier") is tier
    assert value_of("team", team="team 0") is not team


def test_object_with_too_many_labels_counts_as_one_without_labels(
    caplog: pytest.LogCaptureFixture,
) -> None:
    enough = {f"key-{number}": "x" for number in range(1000)}
    name = {"kubernetes.io/metadata.name": "ci"}
    assert read_namespace(namespace("ci", enough)).labels == {**enough, **name}
    assert read_namespace(namespace("ci", {**enough, "one": "more"})).labels == name
    assert read_node(node(labels=enough)).labels == enough
    assert read_node(node(labels={**enough, "one": "more"})).labels == {}
    # The log is limited: a tenant can change an object again and again.
    (line,) = caplog.messages
    assert line == "namespace 'ci': its labels are ignored: more than 1000"


def test_node_has_the_runtime_handlers_that_its_status_lists() -> None:
    cases: list[tuple[object, set[str] | None]] = [
        (None, None),
        ([], None),
        ([{"name": ""}], {""}),
        ([{"name": ""}, {"name": "kata", "features": {"userNamespaces": True}}], {"", "kata"}),
        ([{}, {"name": "kata"}, {"name": "kata"}], {"", "kata"}),
        ([{"name": "k" * 63}], {"k" * 63}),
        # No runtime lists these, but a kubelet can write a megabyte of them.
        ([{"name": "k" * 64}], None),
        ([{"name": str(number)} for number in range(101)], None),
    ]
    for listed, handlers in cases:
        document = node()
        document["status"]["runtimeHandlers"] = listed
        assert (listed, read_node(document).handlers) == (listed, handlers)


def test_key_without_a_value_is_an_empty_text() -> None:
    """In the YAML of a manifest it is null."""
    document = namespace("ci", {"team": None})
    document["metadata"]["annotations"] = {"a": None}
    assert read_namespace(document).labels["team"] == ""


def test_nodes_with_equal_runtime_handlers_share_one_set() -> None:
    documents = [json.loads(json.dumps(node(f"n{n}", handlers=["", "kata"]))) for n in range(2)]
    first, second = map(read_node, documents)
    assert first.handlers is second.handlers


def test_fields_of_a_node_that_are_not_read_cost_little() -> None:
    """A kubelet can write a megabyte of images, many times a second."""
    document = node()
    document["status"]["images"] = [{"names": [f"i/{n}"], "sizeBytes": n} for n in range(10_000)]
    raw = msgspec.Raw(json.dumps(document).encode())
    assert (
        allocated_by(lambda: read_node(raw)) < allocated_by(lambda: msgspec.json.decode(raw)) / 50
    )


def allocated_by(decode: Callable[[], object]) -> int:
    """Return how many bytes were allocated at once while the call ran."""
    tracemalloc.start()
    try:
        decode()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_runtime_handlers_of_another_type_are_an_error() -> None:
    document = node()
    document["status"]["runtimeHandlers"] = [{"name": 5}]
    for source in (document, msgspec.Raw(json.dumps(document).encode())):
        with pytest.raises(msgspec.ValidationError, match=r"runtimeHandlers\[0\]\.name"):
            read_node(source)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pool=new, zone = a,gpu=", {"pool": "new", "zone": "a", "gpu": ""}),
        ("pool", {}),
        (None, {}),
        (",".join(f"key-{number}=" for number in range(10_000)), {}),
    ],
    ids=["of a project", "no selector", "null", "too long"],
)
def test_node_selector_of_a_namespace_is_read_and_bounded(
    text: str | None, expected: dict[str, str]
) -> None:
    metadata: Json = {"name": "ci", "annotations": {"openshift.io/node-selector": text}}
    assert read_namespace({"metadata": metadata}).node_selector == expected
    metadata["annotations"]["scheduler.alpha.kubernetes.io/node-selector"] = "zone=b"
    assert read_namespace({"metadata": metadata}).node_selector == {"zone": "b"}
