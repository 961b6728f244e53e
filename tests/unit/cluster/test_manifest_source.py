"""A directory of manifests as the cluster, while its files come, break, are mended and go.

Long because each change of a file, and each error in it, has its test here.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.support.factories import namespace, node, policy_document, runtime_class
from tests.support.paths import EXAMPLES
from webhook.cluster.manifest_loader import ManifestsError, parse_manifest, read_manifest
from webhook.cluster.manifest_source import ManifestsSource
from webhook.core.defects.versions import Runtime, Version
from webhook.core.policy.plan import CompiledPolicy

BROKEN = "kind: SettlePolicy\napiVersion: podsettle.dev/v1alpha1\nmetadata: {name: a}\nspec: {}\n"


def document(name: str, priority: int = 0) -> str:
    return yaml.safe_dump(policy_document(name, priority=priority))


def in_force(source: ManifestsSource) -> tuple[CompiledPolicy, ...]:
    ci = source.view.namespace("ci")
    assert ci is not None
    return source.view.policies.coverage_for(ci, None).policies


def names(source: ManifestsSource) -> list[str]:
    return [found.name for found in in_force(source)]


@pytest.fixture
def source(tmp_path: Path) -> ManifestsSource:
    (tmp_path / "a.yaml").write_text(document("a"))
    found = ManifestsSource(tmp_path)
    assert found.refresh()
    return found


def test_the_examples_are_without_a_mistake() -> None:
    found = ManifestsSource(EXAMPLES)
    found.refresh()
    assert found.problems == ()
    assert len(found.view.policies) > 0
    assert found.view.runtime_class("overlay-volatile") is not None
    assert len(found.view.nodes.all) > 0


def test_every_kind_that_podsettle_reads_is_in_the_view(tmp_path: Path) -> None:
    documents = [
        policy_document("a"),
        {"kind": "Namespace", **namespace("ci", {"team": "a"}, {"openshift.io/sa.scc.mcs": "s0"})},
        {"kind": "Node", **node("worker", "cri-o://1.33.12", "v1.33.4", {"disk": "ssd"})},
        {"kind": "RuntimeClass", **runtime_class("fast", {"cpu": "1"}, {"disk": "ssd"})},
        {"kind": "ConfigMap", "metadata": {"name": "passed-by"}, "data": 5},
    ]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(documents))
    found = ManifestsSource(tmp_path)
    found.refresh()
    assert found.problems == ()
    space = found.view.namespace("ci")
    assert space is not None
    assert dict(space.labels) == {"team": "a", "kubernetes.io/metadata.name": "ci"}
    assert space.fixed_selinux_level
    (worker,) = found.view.nodes.all
    assert (worker.name, worker.labels) == ("worker", {"disk": "ssd"})
    assert worker.runtime == Runtime("cri-o", Version(1, 33, 12))
    assert worker.kubelet == Version(1, 33, 4)
    fast = found.view.runtime_class("fast")
    assert fast is not None
    assert (fast.overhead, fast.node_selector) == ({"cpu": "1"}, {"disk": "ssd"})
    assert found.view.runtime_class("slow") is None
    assert found.view.server_version is None


def test_a_namespace_without_a_manifest_has_no_labels_but_its_name() -> None:
    space = ManifestsSource(EXAMPLES).view.namespace("nobody-knows")
    assert space is not None
    assert space.labels == {"kubernetes.io/metadata.name": "nobody-knows"}


def test_a_list_holds_documents_too() -> None:
    items = [policy_document("a"), {"kind": "Namespace", **namespace("ci")}]
    found, problems = parse_manifest(yaml.safe_dump({"kind": "List", "items": items}).encode(), "f")
    assert [(f.kind, f.name) for f in found] == [("SettlePolicy", "a"), ("Namespace", "ci")]
    assert problems == ()


@pytest.mark.parametrize("items", ["", "[]", "null"])
def test_a_list_may_be_empty(items: str) -> None:
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
def test_a_problem_names_the_file_the_line_and_the_cause(text: str, problem: str) -> None:
    _, problems = parse_manifest(text.encode(), "f")
    assert str(problems[0]).startswith(problem)


@pytest.mark.parametrize("items", ["5", "true", "text", "{a: b}"])
def test_a_list_of_what_is_no_list_is_a_problem(items: str) -> None:
    found, problems = parse_manifest(f"kind: List\nitems: {items}\n".encode(), "f")
    assert found == []
    assert problems


def test_a_kind_of_another_group_is_not_the_one_of_kubernetes() -> None:
    text = b"apiVersion: management.cattle.io/v3\nkind: Node\nmetadata: {name: machine-1}\n"
    assert parse_manifest(text, "f") == ([], ())


def test_a_key_that_is_called_key_is_a_problem() -> None:
    text = document("a").replace("spec:", '"[key]": 1\nspec:', 1).encode()
    _, problems = parse_manifest(text, "f")
    assert "unknown key" in str(problems[0])


def test_a_kind_that_is_nearly_ours_is_a_problem() -> None:
    _, problems = parse_manifest(b"kind: Settlepolicy\nmetadata: {name: a1}\n", "f")
    assert "did you mean SettlePolicy?" in str(problems[0])


def test_every_problem_of_every_document_is_told() -> None:
    text = document("a") + "---\n" + BROKEN + "---\nkind: Namespace\n---\n" + document("b")
    found, problems = parse_manifest(text.encode(), "f")
    assert [f.name for f in found] == ["a", "b"]
    assert len(problems) == 2


def test_of_a_text_that_is_not_yaml_to_its_end_nothing_counts() -> None:
    text = "kind: Namespace\nmetadata: {name: ci}\n---\nkind: 5\n---\na: {\n"
    found, (problem,) = parse_manifest(text.encode(), "f")
    assert found == []
    assert str(problem).startswith("f:7: not YAML")


def test_only_manifests_directly_inside_are_read(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yml", "c.json", "d.txt", "e.yaml.bak", ".f"):
        (tmp_path / name).write_text(document(name[0]))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "g.yaml").write_text(document("g"))
    (tmp_path / "h.yaml").mkdir()
    found = ManifestsSource(tmp_path)
    found.refresh()
    assert names(found) == ["a", "b", "c"]


def test_nothing_changes_while_the_files_do_not(source: ManifestsSource) -> None:
    view, generation = source.view, source.generation
    assert not source.refresh()
    assert source.view is view
    assert source.generation == generation


def test_a_change_is_seen_and_makes_a_new_view(source: ManifestsSource, tmp_path: Path) -> None:
    view, generation = source.view, source.generation
    (tmp_path / "a.yaml").write_text(document("changed"))
    (tmp_path / "b.yaml").write_text(document("new"))
    assert source.refresh()
    assert names(source) == ["changed", "new"]
    assert source.view is not view
    assert source.generation == generation + 1


def test_a_file_that_breaks_keeps_what_it_last_said_in_force(
    source: ManifestsSource, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(document("b") + "---\n" + BROKEN)
    assert source.refresh()
    assert names(source) == ["a"]
    (problem,) = source.problems
    assert problem.path == "spec.remedies"
    assert not source.refresh()
    assert source.problems == (problem,)


def test_a_file_that_breaks_does_not_keep_others_from_changing(
    source: ManifestsSource, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text("a: [")
    (tmp_path / "b.yaml").write_text(document("b"))
    source.refresh()
    assert names(source) == ["a", "b"]


def test_a_file_that_is_mended_is_in_force_again(source: ManifestsSource, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [")
    source.refresh()
    (tmp_path / "a.yaml").write_text(document("mended"))
    assert source.refresh()
    assert names(source) == ["mended"]
    assert source.problems == ()


@pytest.mark.parametrize("broken", [False, True])
def test_a_file_that_is_removed_takes_its_documents_and_problems_along(
    source: ManifestsSource, tmp_path: Path, broken: bool
) -> None:
    if broken:
        (tmp_path / "a.yaml").write_text("a: [")
        source.refresh()
        assert source.problems
    (tmp_path / "a.yaml").unlink()
    assert source.refresh()
    assert names(source) == []
    assert source.problems == ()


def test_of_a_file_that_was_never_right_what_is_right_counts(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(document("b") + "---\n" + BROKEN)
    found = ManifestsSource(tmp_path)
    found.refresh()
    assert names(found) == ["b"]
    assert len(found.problems) == 1


def test_of_two_objects_with_one_name_the_first_counts_until_it_is_gone(
    source: ManifestsSource, tmp_path: Path
) -> None:
    (tmp_path / "b.yaml").write_text(document("a", priority=7))
    source.refresh()
    (problem,) = source.problems
    assert str(problem) == (
        f"{tmp_path / 'b.yaml'}:1: a second SettlePolicy named 'a'; "
        f"the one at {tmp_path / 'a.yaml'}:1 counts"
    )
    (found,) = in_force(source)
    assert found.priority == 0
    (tmp_path / "a.yaml").unlink()
    source.refresh()
    assert source.problems == ()
    (found,) = in_force(source)
    assert found.priority == 7


def test_one_name_may_stand_for_objects_of_two_kinds(tmp_path: Path) -> None:
    documents = [policy_document("x"), {"kind": "Namespace", **namespace("x")}]
    (tmp_path / "a.yaml").write_text(yaml.safe_dump_all(documents))
    found = ManifestsSource(tmp_path)
    found.refresh()
    assert found.problems == ()


def test_a_config_map_volume_that_swaps_its_link_is_seen(tmp_path: Path) -> None:
    """The kubelet writes a new directory and renames a symbolic link onto `..data`."""
    for version in ("1", "2"):
        (tmp_path / f"..{version}").mkdir()
        file = tmp_path / f"..{version}" / "a.yaml"
        file.write_text(document(f"version-{version}"))
        os.utime(file, ns=(0, 0))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    source = ManifestsSource(tmp_path)
    source.refresh()
    assert names(source) == ["version-1"]
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert source.refresh()
    assert names(source) == ["version-2"]
    assert not source.refresh()


def test_a_directory_that_cannot_be_read_is_an_error_and_the_last_state_stays(
    source: ManifestsSource, tmp_path: Path
) -> None:
    moved = tmp_path.rename(tmp_path.with_name("elsewhere"))
    with pytest.raises(ManifestsError, match="No such file or directory"):
        source.refresh()
    assert names(source) == ["a"]
    moved.rename(tmp_path)
    assert not source.refresh()


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(document("a"))
    with pytest.raises(ManifestsError, match="Not a directory"):
        ManifestsSource(file).refresh()


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    found, (problem,) = read_manifest(tmp_path / "gone.yaml")
    assert found == []
    assert str(problem) == f"{tmp_path / 'gone.yaml'}: No such file or directory"


async def test_watch_finds_a_change_after_the_directory_was_missing(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(document("a"))
    source = ManifestsSource(tmp_path, poll_interval_seconds=0.01)
    assert source.refresh()
    watching = asyncio.create_task(source.watch())
    elsewhere = tmp_path.with_name("elsewhere")
    os.rename(tmp_path, elsewhere)
    await asyncio.sleep(0.05)
    os.rename(elsewhere, tmp_path)
    (tmp_path / "a.yaml").write_text(document("changed"))
    for _ in range(500):
        await asyncio.sleep(0.01)
        if names(source) == ["changed"]:
            break
    assert names(source) == ["changed"]
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
