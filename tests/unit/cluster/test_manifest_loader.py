"""Objects and problems of manifests."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.factories import namespace, policy_document
from webhook.cluster.manifest_loader import parse_manifest, read_manifest

INVALID = "kind: SettlePolicy\napiVersion: podsettle.dev/v1alpha1\nmetadata: {name: a}\nspec: {}\n"


def document(name: str) -> str:
    return yaml.safe_dump(policy_document(name))


def test_items_of_a_list_are_loaded() -> None:
    items = [policy_document("a"), {"kind": "Namespace", **namespace("ci")}]
    found, problems = parse_manifest(yaml.safe_dump({"kind": "List", "items": items}).encode(), "f")
    assert [(f.kind, f.name) for f in found] == [("SettlePolicy", "a"), ("Namespace", "ci")]
    assert problems == ()


@pytest.mark.parametrize("items", ["", "[]", "null"])
def test_empty_list_is_valid(items: str) -> None:
    assert parse_manifest(f"kind: List\nitems: {items}\n".encode(), "f") == ([], ())


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
            "f:1: Node: Expected `str`, got `int` - at `$.metadata.labels[...]`",
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
    ],
)
def test_problem_has_the_file_the_line_and_the_cause(text: str, problem: str) -> None:
    _, problems = parse_manifest(text.encode(), "f")
    assert str(problems[0]).startswith(problem)


@pytest.mark.parametrize("items", ["5", "true", "text", "{a: b}"])
def test_list_with_items_of_another_type_is_a_problem(items: str) -> None:
    found, problems = parse_manifest(f"kind: List\nitems: {items}\n".encode(), "f")
    assert found == []
    assert problems


def test_kind_of_another_api_group_is_ignored() -> None:
    text = b"apiVersion: management.cattle.io/v3\nkind: Node\nmetadata: {name: machine-1}\n"
    assert parse_manifest(text, "f") == ([], ())


def test_unknown_key_named_key_is_a_problem() -> None:
    text = document("a").replace("spec:", '"[key]": 1\nspec:', 1).encode()
    _, problems = parse_manifest(text, "f")
    assert "unknown key" in str(problems[0])


def test_misspelled_kind_is_a_problem_with_a_suggestion() -> None:
    _, problems = parse_manifest(b"kind: Settlepolicy\nmetadata: {name: a1}\n", "f")
    assert "did you mean SettlePolicy?" in str(problems[0])


def test_all_documents_of_a_text_report_their_problems() -> None:
    text = document("a") + "---\n" + INVALID + "---\nkind: Namespace\n---\n" + document("b")
    found, problems = parse_manifest(text.encode(), "f")
    assert [f.name for f in found] == ["a", "b"]
    assert len(problems) == 2


def test_text_with_a_yaml_error_gives_no_objects() -> None:
    text = "kind: Namespace\nmetadata: {name: ci}\n---\nkind: 5\n---\na: {\n"
    found, (problem,) = parse_manifest(text.encode(), "f")
    assert found == []
    assert str(problem).startswith("f:7: not YAML")


def test_missing_file_is_a_problem(tmp_path: Path) -> None:
    found, (problem,) = read_manifest(tmp_path / "gone.yaml")
    assert found == []
    assert str(problem) == f"{tmp_path / 'gone.yaml'}: No such file or directory"
