"""The objects of a text, alone and in lists of any length."""

from __future__ import annotations

import gzip
import json
import re
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from webhook.core.preview.document import DocumentError
from webhook.core.preview.text_objects import TextObject, iterate_objects
from webhook.core.preview.yaml_documents import iterate_items

PODS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}} for number in range(3)
]


def read(text: str) -> list[TextObject]:
    return list(iterate_objects(text.encode(), "f"))


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump], ids=["json", "yaml"])
@pytest.mark.parametrize(
    "document",
    [
        {"apiVersion": "v1", "kind": "List", "items": PODS},
        # The items of a typed list omit what its own kind says.
        {
            "apiVersion": "v1",
            "kind": "PodList",
            "items": [{"metadata": each["metadata"]} for each in PODS],
        },
        {"kind": "List", "items": [{"kind": "List", "items": PODS}]},
    ],
    ids=["List", "PodList", "nested"],
)
def test_items_of_a_list_are_objects(dump: Any, document: dict[str, Any]) -> None:
    found = read(dump(document))
    assert [(each.kind, each.api_version) for each in found] == [("Pod", "v1")] * 3
    assert [each.parse().value for each in found] == PODS
    assert [json.loads(bytes(each.json))["metadata"] for each in found] == [
        each["metadata"] for each in PODS
    ]


@pytest.mark.parametrize("part", ["List", "items", "other", "kind", "Pod", "v1"])
def test_text_that_is_not_utf_8_in_a_list_is_refused_with_its_source(part: str) -> None:
    text = json.dumps({"other": 1, "kind": "List", "items": PODS}, indent=1).encode()
    with pytest.raises(DocumentError, match=r"^f:"):
        [each.line() for each in iterate_objects(text.replace(part.encode(), b"\xff", 1), "f")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(("dump", "is_parsed"), [(json.dumps, False), (yaml.safe_dump, True)])
def test_text_behind_a_byte_order_mark_is_read_as_kubectl_reads_it(
    dump: Any, is_parsed: bool, encoding: str
) -> None:
    text = "\ufeff" + dump({"kind": "List", "items": PODS}).replace("\n", "\r\n")
    found = list(iterate_objects(text.encode(encoding), "f"))
    assert [each.parse().value for each in found] == PODS
    assert [each.is_parsed for each in found] == [is_parsed] * 3


def test_utf_16_that_is_cut_off_and_a_compressed_text_are_errors() -> None:
    for text, message in (
        ("\ufeffa: 1\n".encode("utf-16-le")[:-1], "not UTF-16 text (truncated data)"),
        (gzip.compress(b"a: 1\n"), "compressed by gzip; unpack it first"),
    ):
        for read_all in (iterate_objects, iterate_items):
            with pytest.raises(DocumentError, match=f"^f: {re.escape(message)}$"):
                list(read_all(text, "f"))


@pytest.mark.parametrize("kind_first", [True, False])
def test_objects_have_the_lines_and_paths_of_the_whole_text(kind_first: bool) -> None:
    document = {"items": PODS, "kind": "List"}
    if kind_first:
        document = dict(reversed(document.items()))
    for text in (json.dumps(document, indent=2), yaml.safe_dump(document, sort_keys=False)):
        lines = text.splitlines()
        last = read(text)[2]
        problem = last.problem(("metadata", "name"), "is bad")
        assert "p2" in lines[problem.line - 1]
        assert problem.path == "items[2].metadata.name"
        assert last.line() < problem.line


POD = {"kind": "Pod"}
SPACE = st.text(" \n\t\r", max_size=3)
VALUES = st.sampled_from(
    [POD, {"kind": "Pod", "a": [POD, POD]}, {"kind": "Pod", "b": '"items": [{'}]
)
OTHER_MEMBERS = st.sampled_from(
    [
        *('"metadata":{"kind": "Pod"}', '"metadata":{"items":[{"kind": "Pod"}]}'),
        *('"items\\"":[]', '"a":"["'),
    ]
)
OTHERS = st.lists(OTHER_MEMBERS, unique_by=lambda member: member.partition(":")[0])


@st.composite
def lists_with_lines(draw: st.DrawFn) -> tuple[str, list[int]]:
    """Return a List in JSON, and the line of each item. Items are often equal."""
    text, lines = draw(SPACE) + "{", []
    members = draw(st.permutations(["items", '"kind":"List"', *draw(OTHERS)]))
    for number, member in enumerate(members):
        text += draw(SPACE) + "," * (number > 0) + draw(SPACE)
        if member != "items":
            text += member
            continue
        key = draw(st.sampled_from(['"items"', '"\\u0069tems"']))
        text += f"{key}{draw(SPACE)}:{draw(SPACE)}["
        for index, value in enumerate(draw(st.lists(VALUES, min_size=1, max_size=4))):
            text += draw(SPACE) + "," * (index > 0) + draw(SPACE)
            lines.append(text.count("\n") + 1)
            text += json.dumps(value, indent=draw(st.sampled_from([None, 1])))
        text += draw(SPACE) + "]"
    return text + "}", lines


@given(lists_with_lines(), st.randoms())
@example(('{"items":[{"kind":"Pod"},\n{"kind":"Pod"}],"kind":"List"}', [1, 2]), Random(0))
@example(
    ('{"metadata":{"items":[{"kind":"Pod"}]},\n"items":[{"kind":"Pod"}],"kind":"List"}', [2]),
    Random(0),
)
def test_each_item_of_a_list_in_json_has_its_own_line(
    written: tuple[str, list[int]], random: Random
) -> None:
    text, lines = written
    found = read(text)
    # In any order.
    asked = random.sample(range(len(lines)), len(lines))
    assert [found[index].line() for index in asked] == [lines[index] for index in asked]
    assert [each.parse().line(()) for each in found] == lines


def test_list_in_yaml_may_have_more_values_than_one_object() -> None:
    item = "- kind: ConfigMap\n  data: [" + "1," * 100_000 + "]\n"
    found = iterate_objects(f"kind: List\nitems:\n{item * 5}".encode(), "f")
    assert [each.parse().line(()) for each in found] == [3, 5, 7, 9, 11]


def test_cut_off_dump_in_json_is_an_error_without_a_second_parser() -> None:
    text = json.dumps({"kind": "List", "items": [{"kind": "Pod", "text": "x" * 2_000_000}]})
    with pytest.raises(DocumentError, match="f: not JSON: Input data was truncated"):
        read(text[:-10])
