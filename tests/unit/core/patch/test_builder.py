"""What a patch says, that it applies, and what the self-check lets nobody answer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jsonpatch
import pytest

from tests.support.factories import Json, container, pod
from webhook.core.admission.review import make_request
from webhook.core.patch.builder import PodPatch, escape
from webhook.core.patch.verify import PatchError, VerifiedShapes, verify_patch

HELPER = container("podsettle-linger", "/linger")
GATE = container("podsettle-kubelet-gate", "/linger")
OWN = "podsettle.dev/applied"


def patch_of(document: Json) -> PodPatch:
    return PodPatch(make_request(document, "ci").pod)


def applied(document: Json, patch: PodPatch) -> Json:
    after: Json = jsonpatch.apply_patch(document, list(patch.verified_operations(VerifiedShapes())))
    return after


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
def test_a_key_is_escaped_for_a_pointer(key: str, segment: str) -> None:
    assert escape(key) == segment


def test_no_edits_make_no_operations() -> None:
    assert patch_of(pod()).verified_operations(VerifiedShapes()) == ()


@pytest.mark.parametrize("annotations", [None, {}, {"a/b": "1", "c~d": "2"}])
def test_an_annotation_is_set_whatever_is_there(annotations: dict[str, str] | None) -> None:
    document = pod()
    document["metadata"]["annotations"] = annotations
    patch = patch_of(document)
    patch.annotate(OWN, "p/r")
    assert applied(document, patch)["metadata"]["annotations"] == {
        **(annotations or {}),
        OWN: "p/r",
    }


def test_an_annotation_is_set_on_a_pod_that_has_none_at_all() -> None:
    document = pod()
    patch = patch_of(document)
    patch.annotate(OWN, "p/r")
    assert applied(document, patch)["metadata"]["annotations"] == {OWN: "p/r"}


@pytest.mark.parametrize("volumes", ["absent", None, [], [{"name": "a", "emptyDir": {}}]])
def test_several_volumes_are_appended_in_order(volumes: Any) -> None:
    document = pod(**({} if volumes == "absent" else {"volumes": volumes}))
    patch = patch_of(document)
    for name in ("x", "y"):
        patch.add_volume({"name": name})
    had = volumes if isinstance(volumes, list) else []
    after: Json = jsonpatch.apply_patch(document, list(patch.operations()))
    assert after["spec"]["volumes"] == [*had, {"name": "x"}, {"name": "y"}]


@pytest.mark.parametrize("mounts", ["absent", None, [], [{"name": "a", "mountPath": "/a"}]])
def test_a_mount_is_appended(mounts: Any) -> None:
    fields = {} if mounts == "absent" else {"volumeMounts": mounts}
    document = pod(containers=[container("main", "/bin/main", **fields)])
    patch = patch_of(document)
    patch.add_mount("containers", 0, {"name": "x", "mountPath": "/x"})
    had = mounts if isinstance(mounts, list) else []
    assert applied(document, patch)["spec"]["containers"][0]["volumeMounts"] == [
        *had,
        {"name": "x", "mountPath": "/x"},
    ]


@pytest.mark.parametrize("inits", ["absent", None, [], [container("a")]])
def test_an_init_container_is_put_first(inits: Any) -> None:
    document = pod(**({} if inits == "absent" else {"initContainers": inits}))
    patch = patch_of(document)
    patch.put_init_container_first(HELPER)
    had = inits if isinstance(inits, list) else []
    assert applied(document, patch)["spec"]["initContainers"] == [HELPER, *had]


@pytest.mark.parametrize("name", ["absent", None])
def test_a_class_is_set_where_there_is_none(name: str | None) -> None:
    fields: Json = {} if name == "absent" else {"runtimeClassName": name}
    document = pod(**fields)
    patch = patch_of(document)
    patch.set_runtime_class("fast")
    assert patch.runtime_class_name == "fast"
    assert applied(document, patch)["spec"]["runtimeClassName"] == "fast"


def test_edits_of_containers_count_from_the_received_pod_whatever_is_put_in_front() -> None:
    document = pod(container("a", "x"), container("b", "y"))
    patch = patch_of(document)
    patch.put_init_container_first(HELPER)
    patch.wrap("initContainers", 1, ["w"])
    patch.wrap("containers", 0, ["w"])
    patch.add_mount("initContainers", 1, {"name": "v", "mountPath": "/v"})
    spec = applied(document, patch)["spec"]
    assert [c["name"] for c in spec["initContainers"]] == ["podsettle-linger", "a", "b"]
    assert [c["command"] for c in spec["initContainers"]] == [["/linger"], ["x"], ["w", "y"]]
    assert spec["initContainers"][2]["volumeMounts"] == [{"name": "v", "mountPath": "/v"}]
    assert spec["containers"][0]["command"] == ["w", "/bin/main"]


def test_so_they_do_where_the_helper_is_moved() -> None:
    document = pod(container("a", "x"), container("b", "y"), HELPER)
    patch = patch_of(document)
    patch.move_init_container_first(2)
    patch.wrap("initContainers", 1, ["w"])
    inits = applied(document, patch)["spec"]["initContainers"]
    assert [c["name"] for c in inits] == ["podsettle-linger", "a", "b"]
    assert inits[2]["command"] == ["w", "y"]


@pytest.mark.parametrize("inits", ["absent", None, [], [container("a"), container("b")]])
def test_an_init_container_is_put_last_behind_the_helper(inits: Any) -> None:
    document = pod(**({} if inits == "absent" else {"initContainers": inits}))
    patch = patch_of(document)
    patch.put_init_container(GATE, None)
    had = inits if isinstance(inits, list) else []
    assert applied(document, patch)["spec"]["initContainers"] == [*had, GATE]
    patch.put_init_container_first(HELPER)
    assert applied(document, patch)["spec"]["initContainers"] == [HELPER, *had, GATE]


@pytest.mark.parametrize("helper", range(4))
@pytest.mark.parametrize("before", [0, 1, 2, 3, None])
def test_an_init_container_is_put_before_the_one_that_was_there(
    before: int | None, helper: int
) -> None:
    """Whichever other the helper is moved across."""
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


@pytest.mark.parametrize("helper", range(5))
@pytest.mark.parametrize(
    ("index", "before"), [(1, 0), (4, 0), (3, 1), (4, 3), (0, None), (2, None), (4, None)]
)
def test_an_init_container_is_moved_beside_the_helper(
    index: int, before: int | None, helper: int
) -> None:
    if index == helper:
        return
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


def test_rules_go_to_the_container_that_was_received() -> None:
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
def test_a_change_policy_is_set_whatever_is_there(security: Any) -> None:
    document = pod(**({} if security == "absent" else {"securityContext": security}))
    patch = patch_of(document)
    patch.set_selinux_change_policy("Recursive")
    had = security if isinstance(security, dict) else {}
    assert applied(document, patch)["spec"]["securityContext"] == {
        **had,
        "seLinuxChangePolicy": "Recursive",
    }


def test_no_operation_can_fail_on_purpose() -> None:
    document = pod(container("a", "x"))
    patch = patch_of(document)
    patch.annotate(OWN, "p/r")
    patch.set_runtime_class("fast")
    patch.wrap("initContainers", 0, ["w"])
    patch.add_volume({"name": "v"})
    patch.add_mount("initContainers", 0, {"name": "v", "mountPath": "/v"})
    patch.put_init_container_first(HELPER)
    assert {operation["op"] for operation in patch.verified_operations(VerifiedShapes())} <= {
        "add", "replace", "move",
    }  # fmt: skip


def test_the_received_pod_is_not_changed_by_the_check() -> None:
    pod_ = make_request(pod(container("a", "x"), volumes=[]), "ci").pod
    patch = PodPatch(pod_)
    patch.add_volume({"name": "v"})
    patch.put_init_container_first(HELPER)
    assert patch.verified_operations(VerifiedShapes()) == patch.verified_operations(
        VerifiedShapes()
    )
    assert pod_.spec.volumes == []


@pytest.mark.parametrize(
    "edit",
    [
        lambda patch: patch.wrap("containers", 0, ["w"]),  # It has no command.
        lambda patch: patch.move_init_container_first(7),
    ],
    ids=["replaces what is absent", "moves what is absent"],
)
def test_a_patch_that_does_not_apply_is_refused(edit: Callable[[PodPatch], None]) -> None:
    patch = patch_of(pod(container("a"), containers=[container("main")]))
    edit(patch)
    with pytest.raises(PatchError, match="does not apply"):
        patch.verified_operations(VerifiedShapes())


def received() -> Json:
    """The part of a pod that a patch may touch."""
    return {
        "metadata": {"annotations": {"theirs": "1", OWN: "p/r"}},
        "spec": {
            "runtimeClassName": "kata",
            "securityContext": {"seLinuxChangePolicy": "MountOption"},
            "volumes": [{"name": "v"}, {"name": "w"}],
            "initContainers": [
                {"name": "a", "command": ["x", "y"]},
                {"name": "b"},
                {"name": "c", "restartPolicy": "Always"},
                {"name": "d", "restartPolicyRules": [{"action": "Restart"}]},
                {"name": "podsettle-kubelet-gate", "command": ["/linger"]},
            ],
            "containers": [
                {
                    "name": "main",
                    "command": ["z"],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                },
                {"name": "side"},
            ],
        },
    }


def _set(document: Json, *path: str | int, to: Any) -> None:
    found: Any = document
    for step in path[:-1]:
        found = found[step]
    found[path[-1]] = to


INITS, MAIN = ("spec", "initContainers"), ("spec", "containers", 0)

FORBIDDEN: dict[str, Callable[[Json], object]] = {
    "a top-level key": lambda d: _set(d, "status", to={}),
    "a label": lambda d: _set(d, "metadata", "labels", to={"a": "b"}),
    "a spec key": lambda d: _set(d, "spec", "hostNetwork", to=True),
    "a foreign annotation": lambda d: _set(d, "metadata", "annotations", "mine", to="1"),
    "a changed annotation": lambda d: _set(d, "metadata", "annotations", "theirs", to="2"),
    "a lost annotation": lambda d: d["metadata"]["annotations"].pop("theirs"),
    "lost annotations": lambda d: d["metadata"].pop("annotations"),
    "another class": lambda d: _set(d, "spec", "runtimeClassName", to="fast"),
    "a lost class": lambda d: d["spec"].pop("runtimeClassName"),
    "another change policy": lambda d: _set(
        d, "spec", "securityContext", "seLinuxChangePolicy", to="Recursive"
    ),
    "a lost change policy": lambda d: d["spec"]["securityContext"].clear(),
    "a security context": lambda d: _set(d, "spec", "securityContext", "runAsUser", to=0),
    "another restart policy": lambda d: _set(d, *INITS, 2, "restartPolicy", to="Never"),
    "a lost restart policy": lambda d: d["spec"]["initContainers"][2].pop("restartPolicy"),
    "a restart policy that retries": lambda d: _set(d, *INITS, 0, "restartPolicy", to="Always"),
    "a restart policy to rules": lambda d: _set(d, *INITS, 3, "restartPolicy", to="Never"),
    "other rules": lambda d: _set(d, *INITS, 3, "restartPolicyRules", to=[]),
    "rules alone": lambda d: _set(d, *INITS, 0, "restartPolicyRules", to=[{}]),
    "a restart policy of a regular container": lambda d: _set(
        d, *MAIN, "restartPolicy", to="Never"
    ),
    "another gate": lambda d: _set(d, *INITS, 4, "command", to=["/x"]),
    "a wrapped gate": lambda d: _set(d, *INITS, 4, "command", to=["/w", "/linger"]),
    "a lost gate": lambda d: d["spec"]["initContainers"].pop(),
    "two gates": lambda d: d["spec"]["initContainers"].append(d["spec"]["initContainers"][4]),
    "a regular gate": lambda d: d["spec"]["containers"].append({"name": "podsettle-kubelet-gate"}),
    "a lost volume": lambda d: d["spec"]["volumes"].pop(),
    "lost volumes": lambda d: d["spec"].pop("volumes"),
    "volumes in another order": lambda d: d["spec"]["volumes"].reverse(),
    "a volume in front": lambda d: d["spec"]["volumes"].insert(0, {"name": "x"}),
    "two volumes": lambda d: d["spec"]["volumes"].extend([{"name": "x"}, {"name": "y"}]),
    "a foreign init container": lambda d: d["spec"]["initContainers"].insert(0, {"name": "x"}),
    "a lost init container": lambda d: d["spec"]["initContainers"].pop(0),
    "init containers in another order": lambda d: d["spec"]["initContainers"].reverse(),
    "a renamed init container": lambda d: _set(d, *INITS, 0, "name", to="x"),
    "two helpers": lambda d: d["spec"]["initContainers"].extend([HELPER, HELPER]),
    "a helper that is not first": lambda d: d["spec"]["initContainers"].append(
        {"name": "podsettle-linger", "command": ["/linger"]}
    ),
    "a regular container": lambda d: d["spec"]["containers"].append({"name": "x"}),
    "a regular helper": lambda d: d["spec"]["containers"].append({"name": "podsettle-linger"}),
    "a lost container": lambda d: d["spec"]["containers"].pop(),
    "containers in another order": lambda d: d["spec"]["containers"].reverse(),
    "a renamed container": lambda d: _set(d, *MAIN, "name", to="x"),
    "another image": lambda d: _set(d, *MAIN, "image", to="x"),
    "args": lambda d: _set(d, *MAIN, "args", to=["x"]),
    "another command": lambda d: _set(d, *MAIN, "command", to=["w", "x"]),
    "a command with something behind": lambda d: _set(d, *MAIN, "command", to=["z", "w"]),
    "a shorter command": lambda d: _set(d, *INITS, 0, "command", to=["y"]),
    "a lost command": lambda d: d["spec"]["containers"][0].pop("command"),
    "a command where there was none": lambda d: _set(d, *INITS, 1, "command", to=["w"]),
    "an empty command": lambda d: _set(d, *MAIN, "command", to=[]),
    "a lost mount": lambda d: _set(d, *MAIN, "volumeMounts", to=[]),
    "another mount": lambda d: _set(d, *MAIN, "volumeMounts", 0, "mountPath", to="/w"),
    "two mounts": lambda d: d["spec"]["containers"][0]["volumeMounts"].extend([{}, {}]),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_check_refuses(what: str) -> None:
    after = copy.deepcopy(received())
    FORBIDDEN[what](after)
    with pytest.raises(PatchError, match="patch self-check failed"):
        verify_patch(received(), after)


def test_the_check_lets_through_all_that_podsettle_does() -> None:
    before = received()
    del before["spec"]["runtimeClassName"]
    before["spec"]["securityContext"].clear()
    gate = before["spec"]["initContainers"].pop()
    after = copy.deepcopy(before)
    after["metadata"]["annotations"] |= {
        OWN: "p/r,q/s",
        "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel": "true",
        "try-skip-volume-selinux-label.crio.io": "true",
    }
    spec = after["spec"]
    spec["runtimeClassName"] = "fast"
    spec["volumes"].append({"name": "podsettle-linger"})
    spec["securityContext"]["seLinuxChangePolicy"] = "Recursive"
    spec["initContainers"][0]["command"] = ["w", "x", "y"]
    spec["initContainers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [{}]}
    spec["initContainers"].insert(1, gate)
    spec["initContainers"].insert(0, {"name": "podsettle-linger", "command": ["/linger"]})
    spec["containers"][0]["volumeMounts"].append({"name": "podsettle-linger"})
    spec["containers"][1]["volumeMounts"] = [{"name": "podsettle-linger"}]
    verify_patch(before, after)


def test_the_check_lets_the_helper_be_moved_to_the_front() -> None:
    before = received()
    before["spec"]["initContainers"].append({"name": "podsettle-linger"})
    after = copy.deepcopy(before)
    after["spec"]["initContainers"].insert(0, after["spec"]["initContainers"].pop())
    verify_patch(before, after)


@pytest.mark.parametrize("position", range(5))
def test_the_check_lets_the_gate_be_moved_anywhere(position: int) -> None:
    before = received()
    after = copy.deepcopy(before)
    after["spec"]["initContainers"].insert(position, after["spec"]["initContainers"].pop())
    verify_patch(before, after)


@pytest.mark.parametrize("position", range(3))
def test_the_check_counts_the_helpers_place_without_the_gate(position: int) -> None:
    before = received()
    gate = before["spec"]["initContainers"].pop()
    before["spec"]["initContainers"].insert(1, {"name": "podsettle-linger"})
    after = copy.deepcopy(before)
    after["spec"]["initContainers"].insert(position, gate)
    verify_patch(before, after)
