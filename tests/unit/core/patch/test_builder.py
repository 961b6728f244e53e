"""Tests of the patch builder: each kind of edit gives operations that apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def test_escape_makes_a_key_one_segment_of_a_json_pointer() -> None:
    cases: list[tuple[str, str]] = [
        ("podsettle.dev/applied", "podsettle.dev~1applied"),
        ("~", "~0"),
        ("~1", "~01"),
        ("a/~b", "a~1~0b"),
        ("plain", "plain"),
        ("", ""),
    ]
    assert [(key, escape(key)) for key, _ in cases] == cases


@pytest.mark.parametrize("helper", range(4))
@pytest.mark.parametrize("before", [0, 1, 2, 3, 4])
def test_an_init_container_is_inserted_before_a_received_one(before: int, helper: int) -> None:
    """The helper is moved across any other init container in the same patch."""
    inits = [container(name) for name in ("a", "b", "c")]
    inits.insert(helper, HELPER)
    document = pod(*inits)
    patch = patch_of(document)
    patch.put_init_container(GATE, before)
    if helper:
        patch.move_init_container(helper, "first")
    expected = [c["name"] for c in inits]
    expected.insert(before, GATE["name"])
    if helper:
        expected.remove(HELPER["name"])
        expected.insert(0, HELPER["name"])
    assert [c["name"] for c in applied(document, patch)["spec"]["initContainers"]] == expected


@pytest.mark.parametrize(
    ("index", "before", "helper"),
    [
        (index, before, helper)
        for index, before in [(1, 0), (4, 0), (3, 1), (4, 3), (0, 5), (2, 5), (4, 5)]
        for helper in range(5)
        if index != helper
    ],
)
def test_an_init_container_and_the_helper_are_moved_in_one_patch(
    index: int, before: int, helper: int
) -> None:
    inits: list[Json] = [container(name) for name in ("a", "b", "c")]
    for position, own in sorted(((index, GATE), (helper, HELPER)), key=lambda pair: pair[0]):
        inits.insert(position, own)
    assert (inits[index], inits[helper]) == (GATE, HELPER)
    document = pod(*inits)
    patch = patch_of(document)
    patch.move_init_container(index, before)
    for _ in range(2):
        patch.move_init_container(helper, "first")
    expected = [c["name"] for c in inits]
    expected.insert(before, expected.pop(index))
    expected.remove(HELPER["name"])
    expected.insert(0, HELPER["name"])
    assert [c["name"] for c in applied(document, patch)["spec"]["initContainers"]] == expected


EDITS: dict[str, Callable[[PodPatch], None]] = {
    Edit.ANNOTATION: lambda patch: patch.annotate(OWN, "p/r"),
    Edit.COMMAND: lambda patch: patch.wrap("containers", 0, ["w"]),
    Edit.MOUNT: lambda patch: patch.add_mount("containers", 0, {"name": HELPER["name"]}),
    Edit.VOLUME: lambda patch: patch.add_volume({"name": HELPER}),
    Edit.INIT_CONTAINER: lambda patch: patch.put_init_container(GATE, 9),
    Edit.RESTART_RULES: lambda patch: patch.set_restart_rules(0, []),
    RUNTIME_CLASS: lambda patch: patch.set_field(RUNTIME_CLASS, "fast"),
    "image command": lambda patch: patch.wrap("initContainers", 1, ["w"], (["c"], [])),
    "first": lambda patch: patch.put_init_container(HELPER, "first"),
    "move": lambda patch: patch.move_init_container(0, 9),
    "move first": lambda patch: patch.move_init_container(1, "first"),
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


RUN_AS_USER = "/spec/securityContext/runAsUser"


@pytest.mark.parametrize("security", ["absent", None, {}, {"fsGroup": 5}])
def test_two_fields_of_one_parent_are_set(security: Any) -> None:
    document = pod(**({} if security == "absent" else {"securityContext": security}))
    patch = patch_of(document)
    patch.set_field(CHANGE_POLICY, "Recursive")
    patch.set_field(RUN_AS_USER, 7)
    had = security if isinstance(security, dict) else {}
    assert applied(document, patch, SETTABLE_FIELDS | {RUN_AS_USER})["spec"]["securityContext"] == {
        **had,
        "seLinuxChangePolicy": "Recursive",
        "runAsUser": 7,
    }


@pytest.mark.parametrize(
    ("path", "empty", "value"),
    [
        ("/spec/nodeSelector", {"nodeSelector": {}}, {"disk": "ssd"}),
        (
            "/spec/securityContext/fsGroupChangePolicy",
            {"securityContext": {"fsGroupChangePolicy": ""}},
            "OnRootMismatch",
        ),
    ],
)
def test_an_empty_value_is_replaced(path: str, empty: Json, value: Any) -> None:
    document = pod(**empty)
    patch = patch_of(document)
    patch.set_field(path, value)
    found = applied(document, patch, {path})
    for segment in path.split("/")[1:]:
        found = found[segment]
    assert found == value


@pytest.mark.parametrize("received", ["absent", "", "fast"])
def test_a_field_is_set_once(received: str) -> None:
    fields: Json = {} if received == "absent" else {"runtimeClassName": received}
    patch = patch_of(pod(**fields))
    for _ in range(2):
        patch.set_field(RUNTIME_CLASS, "fast")
    assert len(patch.operations()) == (received != "fast")
    assert patch.runtime_class_name == "fast"
    with pytest.raises(PatchError, match="/spec/runtimeClassName would change"):
        patch.set_field(RUNTIME_CLASS, "slow")


@pytest.mark.parametrize(
    ("path", "value"), [("/spec/hostNetwork", False), (RUN_AS_USER, 0), ("/spec/nodeName", "n")]
)
def test_a_field_that_the_pod_sets_is_never_replaced(path: str, value: Any) -> None:
    patch = patch_of(pod(hostNetwork=True, nodeName="m", securityContext={"runAsUser": 5}))
    with pytest.raises(PatchError, match=f"{path} would change"):
        patch.set_field(path, value)
    falsy = patch_of(pod(hostNetwork=False, nodeName="m", securityContext={"runAsUser": 0}))
    with pytest.raises(PatchError, match="hostNetwork would change"):
        falsy.set_field("/spec/hostNetwork", True)


@pytest.mark.parametrize(
    "path",
    [
        "/spec/enableServiceLinks",
        "/spec/initContainers",
        "/spec/labelCount",
        "/spec/securityContext/fsGroupUnknown",
        "/spec/nodeSelector/disk",
        "/spec/affinity/nodeAffinity",
    ],
)
def test_a_field_that_no_struct_declares_cannot_be_set(path: str) -> None:
    for document in (pod(), pod(securityContext={}, nodeSelector={"a": "b"})):
        with pytest.raises(PatchError, match="is not a declared field"):
            patch_of(document).set_field(path, "x")


def test_only_the_named_one_of_the_inserted_containers_is_changed() -> None:
    document = pod(container("a"))
    patch = patch_of(document)
    patch.put_init_container(GATE, 9)
    patch.put_init_container(HELPER, "first")
    patch.change_inserted(GATE["name"], container("podsettle-start-gate", "/linger"))
    inits = applied(document, patch)["spec"]["initContainers"]
    assert [each["name"] for each in inits] == ["podsettle-linger", "a", "podsettle-start-gate"]
    assert patch.inserted_init_container(GATE["name"]) is None
    assert patch.inserted_init_container("podsettle-start-gate") == inits[-1]
