"""Every patch is checked: edits that the received pod does not allow are rejected."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.factories import Json, container, pod
from tests.support.patches import CHANGE_POLICY, RUNTIME_CLASS, SETTABLE_FIELDS, patch_of
from webhook.core.patch.builder import PodPatch
from webhook.core.patch.self_check import PatchError, verify_operations

Edit = Callable[[PodPatch], object]


def check(document: Json, *edits: Edit) -> None:
    patch = patch_of(document)
    for edit in edits:
        edit(patch)
    patch.verified_operations(SETTABLE_FIELDS)


WRAP: Edit = lambda patch: patch.wrap("initContainers", 0, ["w"])  # noqa: E731
CLASS: Edit = lambda patch: patch.set_field(RUNTIME_CLASS, "fast")  # noqa: E731
RULES: Edit = lambda patch: patch.set_restart_rules(0, [{"action": "Restart"}])  # noqa: E731
SELINUX: Edit = lambda patch: patch.set_field(CHANGE_POLICY, "Recursive")  # noqa: E731
IMAGE: Edit = lambda patch: patch.wrap("initContainers", 0, ["w"], (["e"], ["c"]))  # noqa: E731
MOVE: Edit = lambda patch: patch.move_init_container(1, "first")  # noqa: E731


def volume(name: str) -> Edit:
    return lambda patch: patch.add_volume({"name": name})


def mount(name: str) -> Edit:
    return lambda patch: patch.add_mount("initContainers", 0, {"name": name, "mountPath": "/v"})


def mount_with_volume(patch: PodPatch) -> None:
    VOLUME(patch)
    MOUNT(patch)


def first(name: str) -> Edit:
    return lambda patch: patch.put_init_container({"name": name}, "first")


def last(name: str) -> Edit:
    return lambda patch: patch.put_init_container({"name": name}, 9)


VOLUME = volume("podsettle-linger")
MOUNT = mount("podsettle-linger")
ONE = pod(container("a", "x"))
SUMMARY, SKIPPED = "podsettle.dev/summary", "podsettle.dev/skipped"


def note(key: str, text: str) -> Edit:
    return lambda patch: patch.annotate(key, text)


HELPED = pod(container("podsettle-linger", "/linger"))


@pytest.mark.parametrize(
    ("allowed", "edit", "forbidden", "forbidden_edit"),
    [
        (ONE, WRAP, pod(container("a")), WRAP),
        (ONE, WRAP, pod(container("a", command=[])), WRAP),
        (ONE, WRAP, HELPED, WRAP),
        (ONE, WRAP, pod(container("a", "x", restartPolicy="Always")), WRAP),
        (ONE, CLASS, pod(runtimeClassName="kata"), CLASS),
        (pod(runtimeClassName="fast"), CLASS, pod(runtimeClassName="kata"), CLASS),
        (pod(securityContext={}), SELINUX,
         pod(securityContext={"seLinuxChangePolicy": "MountOption"}), SELINUX),
        (ONE, RULES, pod(container("a", "x", restartPolicy="Always")), RULES),
        (pod(container("a")), RULES, pod(container("a", restartPolicy="Always")), RULES),
        (pod(container("a")), RULES,
         pod(container("a", restartPolicyRules=[{"action": "Restart"}])), RULES),
        (ONE, first("podsettle-linger"), ONE, first("intruder")),
        (ONE, first("podsettle-linger"), HELPED, first("podsettle-linger")),
        (ONE, last("podsettle-kubelet-gate"), ONE, last("intruder")),
        (ONE, VOLUME, pod(volumes=[{"name": "a"}, {"name": "podsettle-linger"}]), VOLUME),
        (pod(volumes=[{"name": "a"}]), VOLUME, pod(volumes=[{"name": "a"}]), volume("v")),
        (pod(container("a")), IMAGE, pod(container("a", args=["mine"])), IMAGE),
        (pod(container("a")), IMAGE, ONE, IMAGE),
        (pod(container("a")), IMAGE, pod(container("a", "e")), IMAGE),
        (pod(container("a")), IMAGE, pod(container("a", "x", restartPolicy="Always")), IMAGE),
        (ONE, mount_with_volume, ONE, mount("v")),
        (ONE, mount_with_volume, pod(container("sidecar-a", "x")), mount_with_volume),
        (ONE, mount_with_volume,
         pod(container("a", volumeMounts=[{"mountPath": "/podsettle"}])), mount_with_volume),
        (ONE, last("podsettle-kubelet-gate"),
         pod(containers=[container("podsettle-kubelet-gate")]), last("podsettle-kubelet-gate")),
        (pod(*map(container, ("a", "podsettle-linger"))), MOVE, pod(*map(container, "ab")), MOVE),
        (pod(*map(container, ("a", "podsettle-linger"))), MOVE, ONE, MOVE),
    ],
)  # fmt: skip
def test_an_edit_is_checked_against_the_received_pod(
    allowed: Json, edit: Edit, forbidden: Json, forbidden_edit: Edit
) -> None:
    try:
        check(allowed, edit)
    except PatchError as error:
        pytest.fail(str(error))
    with pytest.raises(PatchError):
        check(forbidden, forbidden_edit)


@pytest.mark.parametrize(
    ("key", "longest"),
    [(SUMMARY, 1_280 - len(SUMMARY)), (SKIPPED, 768 - len(SKIPPED))],
)
@pytest.mark.parametrize("annotations", [None, {}, {SUMMARY: "old", SKIPPED: ""}])
def test_note_above_its_bound_is_rejected(
    key: str, longest: int, annotations: dict[str, str] | None
) -> None:
    document = pod(annotations=annotations)
    check(document, note(key, "x" * longest))
    check(document, note(key, "é" * (longest // 2)))
    for text in ("x" * (longest + 1), "é" * (longest // 2 + 1)):
        with pytest.raises(PatchError, match=f"{key} exceeds"):
            check(document, note(key, text))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (SKIPPED, "a\nb"),
        *itertools.product([SUMMARY, SKIPPED], ["\x1b[31m", "a\rb", "\u202e", "\x85", "\u2028"]),
    ],
)
def test_note_with_control_characters_is_rejected(key: str, text: str) -> None:
    with pytest.raises(PatchError, match=f"{key} has control characters"):
        check(ONE, note(key, text))


def test_summary_of_several_lines_is_accepted() -> None:
    check(ONE, note(SUMMARY, "a is b;\nc is d.\nWhy: https://docs.example"))


def test_a_mount_of_a_volume_that_the_pod_lacks_is_rejected() -> None:
    check(pod(container("a", "x"), volumes=[{"name": "podsettle-linger"}]), MOUNT)
    with pytest.raises(PatchError, match="volume is missing"):
        check(pod(container("a", "x"), volumes=[{"name": "v"}]), MOUNT)


@pytest.mark.parametrize(
    ("edit", "document"),
    [
        (WRAP, ONE),
        (IMAGE, pod(container("a"))),
        (last("podsettle-kubelet-gate"), ONE),
        (lambda patch: patch.move_init_container(0, 9), HELPED),
    ],
    ids=["wrapper", "image command", "insertion", "move"],
)
def test_an_edit_that_would_undo_an_earlier_one_is_rejected(edit: Edit, document: Json) -> None:
    with pytest.raises(PatchError, match="would change twice"):
        check(document, edit, edit)


def test_a_field_that_no_remedy_declares_is_rejected() -> None:
    patch = patch_of(pod())
    patch.set_field("/spec/hostNetwork", True)
    with pytest.raises(PatchError, match="/spec/hostNetwork would change"):
        patch.verified_operations(SETTABLE_FIELDS)
    patch.verified_operations(SETTABLE_FIELDS | {"/spec/hostNetwork"})


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/spec/containers/0/image", "value": "x"},
        {"op": "replace", "path": "/spec/containers/0/name", "value": "x"},
        {"op": "add", "path": "/spec/containers/0/command/-", "value": "x"},
        {"op": "move", "from": "/spec/containers/0/name", "path": "/spec/initContainers/0/x"},
        {"op": "add", "path": "/spec/volumes/0/emptyDir", "value": {}},
    ],
)
def test_an_operation_inside_a_value_without_edits_does_not_apply(operation: Json) -> None:
    part = {"spec": {"containers": ["main"], "initContainers": [{"name": "a"}], "volumes": [""]}}
    with pytest.raises(PatchError, match="does not apply"):
        verify_operations(part, [operation], SETTABLE_FIELDS)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/spec/containers/0", "value": {"name": "main", "image": "x"}},
        {"op": "replace", "path": "/spec/containers/0", "value": "other"},
        {"op": "add", "path": "/spec/containers", "value": []},
        {"op": "add", "path": "/spec/containers/-", "value": {"name": "x"}},
        {"op": "replace", "path": "/spec/volumes/0", "value": {"name": "v"}},
        {"op": "move", "from": "/spec/volumes/0", "path": "/spec/x"},
        {"op": "add", "path": "/spec/securityContext", "value": {}},
        {"op": "add", "path": "/spec/affinity", "value": {}},
        {"op": "add", "path": "/spec/securityContext/fsGroup", "value": 1},
        {"op": "replace", "path": "/spec/securityContext/a", "value": {}},
    ],
)  # fmt: skip
def test_an_operation_that_replaces_a_value_without_edits_is_rejected(operation: Json) -> None:
    part: Json = {"spec": {"containers": ["main"], "volumes": [""], "securityContext": {"a": 1}}}
    with pytest.raises(PatchError, match="would change"):
        verify_operations(part, [operation], SETTABLE_FIELDS)


def test_the_self_check_changes_neither_the_operations_nor_the_received_part() -> None:
    part: Json = {"spec": {"containers": ["main"]}}
    added: list[Any] = [{"name": "podsettle-kubelet-gate"}]
    operations: list[Json] = [
        {"op": "add", "path": "/spec/initContainers", "value": added},
        {"op": "add", "path": "/spec/initContainers/0", "value": {"name": "podsettle-linger"}},
    ]
    verify_operations(part, operations, SETTABLE_FIELDS)
    assert part == {"spec": {"containers": ["main"]}}
    assert added == [{"name": "podsettle-kubelet-gate"}]
