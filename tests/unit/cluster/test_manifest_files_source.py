"""A directory of manifests as the source of the cluster view, while its files change."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.support.factories import namespace, node, policy_document, runtime_class
from tests.support.waiting import eventually
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.cluster.manifest_loader import ManifestsError
from webhook.core.defects.versions import Runtime, Version
from webhook.core.policy.plan import CompiledPolicy

INVALID = "kind: SettlePolicy\napiVersion: podsettle.dev/v1alpha1\nmetadata: {name: a}\nspec: {}\n"


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


def test_view_contains_every_kind_that_podsettle_reads(tmp_path: Path) -> None:
    documents = [
        policy_document("a"),
        {"kind": "Namespace", **namespace("ci", {"team": "a"}, {"openshift.io/sa.scc.mcs": "s0"})},
        {"kind": "Node", **node("worker", "cri-o://1.33.12", "v1.33.4", {"disk": "ssd"})},
        {"kind": "RuntimeClass", **runtime_class("fast", {"cpu": "1"}, {"disk": "ssd"})},
        {"kind": "ConfigMap", "metadata": {"name": "ignored"}, "data": 5},
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
    fast = found.view.runtime_classes["fast"]
    assert (fast.overhead, fast.node_selector) == ({"cpu": "1"}, {"disk": "ssd"})
    assert "slow" not in found.view.runtime_classes
    assert found.view.server_version is None


def test_other_files_and_subdirectories_are_ignored(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yml", "c.json", "d.txt", "e.yaml.bak", ".f"):
        (tmp_path / name).write_text(document(name[0]))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "g.yaml").write_text(document("g"))
    (tmp_path / "h.yaml").mkdir()
    found = ManifestsSource(tmp_path)
    found.refresh()
    assert names(found) == ["a", "b", "c"]


def test_file_that_becomes_invalid_keeps_its_last_valid_objects(
    source: ManifestsSource, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(document("b") + "---\n" + INVALID)
    assert source.refresh()
    assert names(source) == ["a"]
    (problem,) = source.problems
    assert problem.path == "spec.remedies"
    view = source.view
    assert not source.refresh()
    assert source.view is view
    assert source.problems == (problem,)


BROKEN = "a: ["
Files = dict[str, str | None]


@pytest.mark.parametrize(
    "steps",
    [
        [({"a": document("changed"), "b": document("new")}, ["changed", "new"], 0)],
        [({"a": BROKEN, "b": document("b")}, ["a", "b"], 1)],
        [({"a": BROKEN}, ["a"], 1), ({"a": document("corrected")}, ["corrected"], 0)],
        [({"a": None}, [], 0)],
        [({"a": BROKEN}, ["a"], 1), ({"a": None}, [], 0)],
        [({"b": f"{document('b')}---\n{INVALID}"}, ["a", "b"], 1)],
        [({"b": yaml.safe_dump({"kind": "Namespace", **namespace("a")})}, ["a"], 0)],
    ],
    ids=[
        *("changed", "broken beside another", "corrected", "removed", "broken and removed"),
        *("never valid", "one name for two kinds"),
    ],
)
def test_refresh_reads_what_has_changed(
    source: ManifestsSource, tmp_path: Path, steps: list[tuple[Files, list[str], int]]
) -> None:
    """Each step writes or removes files, and has the policies in force and a number of problems."""
    for files, in_force, problems in steps:
        view = source.view
        for name, text in files.items():
            path = tmp_path / f"{name}.yaml"
            path.unlink(missing_ok=True)
            if text is not None:
                path.write_text(text)
        assert source.refresh()
        assert names(source) == in_force
        assert len(source.problems) == problems
        assert source.view is not view


def test_first_of_two_objects_with_the_same_name_is_in_force(
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
    assert found.document.spec.priority == 0
    (tmp_path / "a.yaml").unlink()
    source.refresh()
    assert source.problems == ()
    (found,) = in_force(source)
    assert found.document.spec.priority == 7


def test_update_of_a_config_map_volume_is_found(tmp_path: Path) -> None:
    """The kubelet creates a new directory, and renames a symbolic link to `..data`."""
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


def test_missing_directory_is_an_error_and_the_last_state_stays(
    source: ManifestsSource, tmp_path: Path
) -> None:
    moved = tmp_path.rename(tmp_path.with_name("moved-away"))
    with pytest.raises(ManifestsError, match="No such file or directory"):
        source.refresh()
    assert names(source) == ["a"]
    moved.rename(tmp_path)
    assert not source.refresh()


def test_paths_are_files_and_directories_in_their_order(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    directory.mkdir()
    (directory / "a.yaml").write_text(document("a"))
    (directory / "notes.txt").write_text("not a manifest")
    file = tmp_path / "zero.policy"
    file.write_text(document("zero"))
    source = ManifestsSource(file, directory, directory / "a.yaml")
    assert source.refresh()
    assert names(source) == ["a", "zero"]
    assert source.problems == ()
    assert source.title == f"{file}, {directory}, {directory / 'a.yaml'}"


def test_first_path_counts_for_two_objects_with_one_name(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yaml"):
        (tmp_path / name).write_text(document("p"))
    source = ManifestsSource(tmp_path / "b.yaml", tmp_path / "a.yaml")
    source.refresh()
    (problem,) = source.problems
    assert problem.source == str(tmp_path / "a.yaml")
    assert f"{tmp_path / 'b.yaml'}:" in problem.message


async def test_watch_finds_a_change_after_the_directory_was_missing(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(document("a"))
    source = ManifestsSource(tmp_path, poll_interval_seconds=0.01)
    assert source.refresh()
    watching = asyncio.create_task(source.watch())
    moved = tmp_path.with_name("moved-away")
    os.rename(tmp_path, moved)
    await eventually(lambda: source.problems)
    os.rename(moved, tmp_path)
    (tmp_path / "a.yaml").write_text(document("changed"))
    await eventually(lambda: names(source) == ["changed"])
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching


async def logged_after(source: ManifestsSource, change: Callable[[], object]) -> list[str]:
    """The errors that a watch logs because of a change of the files."""
    errors: list[str] = []

    class Errors(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            errors.append(record.getMessage())

    handler = Errors(logging.ERROR)
    logger = logging.getLogger("webhook.cluster.manifest_files_source")
    logger.addHandler(handler)
    try:
        async with source.running():
            change()
            await eventually(lambda: errors)
    finally:
        logger.removeHandler(handler)
    return errors


@pytest.mark.parametrize(
    ("before", "after", "effect"),
    [
        (document("b"), INVALID, "the file's last valid state stays in force"),
        ("", INVALID, "nothing of the file is in force"),
        ("", f"{INVALID}---\n{document('b')}", "the valid objects of the file are in force"),
    ],
)
async def test_new_problem_is_logged_with_what_it_means_for_its_file(
    before: str, after: str, effect: str, tmp_path: Path
) -> None:
    file = tmp_path / "b.yaml"
    file.write_text(before)
    source = ManifestsSource(tmp_path, poll_interval_seconds=0.01)
    source.refresh()
    errors = await logged_after(source, lambda: replace_file(file, after))
    assert [line for line in errors if line.endswith(f"; {effect}")]


async def test_deleted_directory_is_named_once_in_the_check(tmp_path: Path) -> None:
    directory = tmp_path / "manifests"
    directory.mkdir()
    source = ManifestsSource(directory, poll_interval_seconds=0.01)
    source.refresh()
    await logged_after(source, directory.rmdir)
    (check,) = source.checks()
    assert check.note == f"{directory}: No such file or directory"


def replace_file(path: Path, text: str) -> None:
    """Write a file so that no reader sees a part of it."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)
