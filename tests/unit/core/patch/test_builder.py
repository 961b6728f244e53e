"""Tests of the patch builder: each kind of edit gives operations that apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonpatch
import pytest

from tests.support.factories import Json, container, pod
from tests.support.patches import (
    CHANGE_POLICY,
    GATE,
    HELPER,
    OWN,
    RUNTIME_CLASS,
    SETTABLE_FIELDS,
    applied,
    patch_of,
)
from webhook.core.patch.builder import PodPatch, escape
from webhook.core.patch.edits import Edit
from webhook.core.patch.self_check import PatchError


@pytest.mark.parametrize(
    ("key", "segment"),
    [
        ("podsettle.dev/applied", "podsettle.dev~1applied"),
        ("~", "~0"),
        ("~1", "~01"),
        ("a/~b", "a~1~0b"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_escape_makes_a_key_one_segment_of_a_json_pointer(key: str, segment: str) -> None:
    assert escape(key) == segment


def test_a_patch_without_edits_has_no_operations() -> None:
    assert patch_of(pod()).verified_operations(SETTABLE_FIELDS) == ()


@pytest.mark.parametrize("annotations", [None, {}, {"a/b": "1", "c~d": "2"}])
def test_an_annotation_is_added_to_any_received_annotations(
    annotations: dict[str, str] | None,
) -> None:
    document = pod()
    document["metadata"]["annotations"] = annotations
    patch = patch_of(document)
    patch.annotate(OWN, "p/r")
    assert applied(document, patch)["metadata"]["annotations"] == {
        **(annotations or {}),
        OWN: "p/r",
    }


def test_an_annotation_is_added_to_a_pod_without_metadata() -> None:
    document = pod()
    patch = patch_of(document)
    patch.annotate(OWN, "p/r")
    assert applied(document, patch)["metadata"]["annotations"] == {OWN: "p/r"}


@pytest.mark.parametrize("volumes", ["absent", None, [], [{"name": "a", "emptyDir": {}}]])
def test_volumes_are_appended_in_order(volumes: Any) -> None:
    document = pod(**({} if volumes == "absent" else {"volumes": volumes}))
    patch = patch_of(document)
    for name in ("x", "y"):
        patch.add_volume({"name": name})
    had = volumes if isinstance(volumes, list) else []
    after: Json = jsonpatch.apply_patch(document, list(patch.operations()))
    assert after["spec"]["volumes"] == [*had, {"name": "x"}, {"name": "y"}]


@pytest.mark.parametrize("mounts", ["absent", None, [], [{"name": "a", "mountPath": "/a"}]])
def test_a_mount_is_appended_to_any_received_mounts(mounts: Any) -> None:
    fields = {} if mounts == "absent" else {"volumeMounts": mounts}
    document = pod(containers=[container("main", "/bin/main", **fields)])
    patch = patch_of(document)
    patch.add_volume({"name": "podsettle-linger"})
    patch.add_mount("containers", 0, {"name": "podsettle-linger", "mountPath": "/x"})
    had = mounts if isinstance(mounts, list) else []
    assert applied(document, patch)["spec"]["containers"][0]["volumeMounts"] == [
        *had,
        {"name": "podsettle-linger", "mountPath": "/x"},
    ]


@pytest.mark.parametrize("inits", ["absent", None, [], [container("a")]])
def test_an_init_container_is_inserted_before_all_others(inits: Any) -> None:
    document = pod(**({} if inits == "absent" else {"initContainers": inits}))
    patch = patch_of(document)
    patch.put_init_container_first(HELPER)
    had = inits if isinstance(inits, list) else []
    assert applied(document, patch)["spec"]["initContainers"] == [HELPER, *had]


@pytest.mark.parametrize("name", ["absent", None])
def test_a_runtime_class_is_set_if_the_pod_has_none(name: str | None) -> None:
    fields: Json = {} if name == "absent" else {"runtimeClassName": name}
    document = pod(**fields)
    patch = patch_of(document)
    patch.set_field(RUNTIME_CLASS, "fast")
    assert patch.runtime_class_name == "fast"
    assert applied(document, patch)["spec"]["runtimeClassName"] == "fast"


def test_edits_use_received_indices_when_an_init_container_is_inserted_first() -> None:
    document = pod(container("a", "x"), container("b", "y"))
    patch = patch_of(document)
    patch.put_init_container_first(HELPER)
    patch.wrap("initContainers", 1, ["w"])
    patch.wrap("containers", 0, ["w"])
    mount = {"name": "podsettle-linger", "mountPath": "/v"}
    patch.add_volume({"name": "podsettle-linger"})
    patch.add_mount("initContainers", 1, mount)
    spec = applied(document, patch)["spec"]
    assert [c["name"] for c in spec["initContainers"]] == ["podsettle-linger", "a", "b"]
    assert [c["command"] for c in spec["initContainers"]] == [["/linger"], ["x"], ["w", "y"]]
    assert spec["initContainers"][2]["volumeMounts"] == [mount]
    assert spec["containers"][0]["command"] == ["w", "/bin/main"]


def test_edits_use_received_indices_when_the_helper_is_moved_first() -> None:
    document = pod(container("a", "x"), container("b", "y"), HELPER)
    patch = patch_of(document)
    patch.move_init_container_first(2)
    patch.wrap("initContainers", 1, ["w"])
    inits = applied(document, patch)["spec"]["initContainers"]
    assert [c["name"] for c in inits] == ["podsettle-linger", "a", "b"]
    assert inits[2]["command"] == ["w", "y"]


@pytest.mark.parametrize("inits", ["absent", None, [], [container("a"), container("b")]])
def test_an_init_container_is_inserted_last_while_the_helper_is_inserted_first(inits: Any) -> None:
    document = pod(**({} if inits == "absent" else {"initContainers": inits}))
    patch = patch_of(document)
    patch.put_init_container(GATE, None)
    had = inits if isinstance(inits, list) else []
    assert applied(document, patch)["spec"]["initContainers"] == [*had, GATE]
    patch.put_init_container_first(HELPER)
    assert applied(document, patch)["spec"]["initContainers"] == [HELPER, *had, GATE]


@pytest.mark.parametrize("helper", range(4))
@pytest.mark.parametrize("before", [0, 1, 2, 3, None])
def test_an_init_container_is_inserted_before_a_received_one(
    before: int | None, helper: int
) -> None:
    """The helper is moved across any other init container in the same patch."""
    inits = [container(name) for name in ("a", "b", "c")]
    inits.insert(helper, HELPER)
    document = pod(*inits)
    patch = patch_of(document)
    patch.put_init_container(GATE, before)
    if helper:
        patch.move_init_container_first(helper)
    expected = [c["name"] for c in inits]
    expected.insert(len(expected) if before is None else before, GATE["name"])
    if helper:
        expected.remove(HELPER["name"])
        expected.insert(0, HELPER["name"])
    assert [c["name"] for c in applied(document, patch)["spec"]["initContainers"]] == expected


@pytest.mark.parametrize(
    ("index", "before", "helper"),
    [
        (index, before, helper)
        for index, before in [(1, 0), (4, 0), (3, 1), (4, 3), (0, None), (2, None), (4, None)]
        for helper in range(5)
        if index != helper
    ],
)
def test_an_init_container_and_the_helper_are_moved_in_one_patch(
    index: int, before: int | None, helper: int
) -> None:
    inits: list[Json] = [container(name) for name in ("a", "b", "c")]
    for position, own in sorted(((index, GATE), (helper, HELPER)), key=lambda pair: pair[0]):
        inits.insert(position, own)
    assert (inits[index], inits[helper]) == (GATE, HELPER)
    document = pod(*inits)
    patch = patch_of(document)
    patch.move_init_container(index, before)
    patch.move_init_container_first(helper)
    expected = [c["name"] for c in inits]
    expected.insert(len(inits) if before is None else before, expected.pop(index))
    expected.remove(HELPER["name"])
    expected.insert(0, HELPER["name"])
    assert [c["name"] for c in applied(document, patch)["spec"]["initContainers"]] == expected


def test_restart_rules_use_received_indices_when_an_init_container_is_inserted() -> None:
    document = pod(container("a", "x"), container("b", "y", restartPolicy=None))
    patch = patch_of(document)
    rules = [{"action": "Restart"}]
    patch.set_restart_rules(1, rules)
    patch.put_init_container(GATE, 0)
    patch.put_init_container_first(HELPER)
    inits = applied(document, patch)["spec"]["initContainers"]
    assert [c.get("restartPolicyRules") for c in inits] == [None, None, None, rules]
    assert inits[3]["restartPolicy"] == "Never"


@pytest.mark.parametrize("security", ["absent", None, {}, {"fsGroup": 5}])
def test_a_selinux_change_policy_is_set_in_any_security_context(security: Any) -> None:
    document = pod(**({} if security == "absent" else {"securityContext": security}))
    patch = patch_of(document)
    patch.set_field(CHANGE_POLICY, "Recursive")
    had = security if isinstance(security, dict) else {}
    assert applied(document, patch)["spec"]["securityContext"] == {
        **had,
        "seLinuxChangePolicy": "Recursive",
    }


EDITS: dict[str, Callable[[PodPatch], None]] = {
    Edit.ANNOTATION: lambda patch: patch.annotate(OWN, "p/r"),
    Edit.COMMAND: lambda patch: patch.wrap("containers", 0, ["w"]),
    Edit.MOUNT: lambda patch: patch.add_mount("containers", 0, {"name": HELPER["name"]}),
    Edit.VOLUME: lambda patch: patch.add_volume({"name": HELPER}),
    Edit.INIT_CONTAINER: lambda patch: patch.put_init_container(GATE, None),
    Edit.RESTART_RULES: lambda patch: patch.set_restart_rules(0, []),
    RUNTIME_CLASS: lambda patch: patch.set_field(RUNTIME_CLASS, "fast"),
    "image command": lambda patch: patch.wrap_image_command("initContainers", 1, ["w"], ["c"], []),
    "first": lambda patch: patch.put_init_container_first(HELPER),
    "move": lambda patch: patch.move_init_container(0, None),
    "move first": lambda patch: patch.move_init_container_first(1),
}
KINDS = {
    "image command": Edit.COMMAND,
    **dict.fromkeys(("first", "move", "move first"), Edit.INIT_CONTAINER),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_undeclared_edit_is_refused(name: str) -> None:
    kind = KINDS.get(name, name)
    edits, fields = set(Edit), {RUNTIME_CLASS, CHANGE_POLICY}
    patch = patch_of(pod(container("a", "x"), container("b")))
    EDITS[name](patch)
    with pytest.raises(PatchError, match=f"undeclared edits: {kind}$"):
        patch.check_declared(edits - {kind}, fields - {kind})
    patch.check_declared(edits, fields)
    patch.check_declared(set(), set())
