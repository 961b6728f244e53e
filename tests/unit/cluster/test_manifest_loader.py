"""Objects and problems of manifests."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.factories import namespace, policy_document
from webhook.cluster.manifest_loader import ManifestsError, files_of, read_manifest

INVALID = "kind: SettlePolicy\napiVersion: podsettle.dev/v1alpha1\nmetadata: {name: a}\nspec: {}\n"


def document(name: str) -> str:
    return yaml.safe_dump(policy_document(name))


POLICY = document("a")


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
        (POLICY.replace("spec:", '"[key]": 1\nspec:', 1), "unknown key"),
        *((f"kind: List\nitems: {items}\n", "f:") for items in ("5", "true", "text", "{a: b}")),
        # After an error in the YAML, nothing of the text counts.
        (f"{POLICY}---\nkind: 5\n---\na: {{\n", "not YAML"),
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
