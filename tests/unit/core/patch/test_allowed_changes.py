"""Tests of the check that a patch makes no other change than podsettle may make."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.factories import Json, container, pod
from tests.support.patches import HELPER, OWN, SETTABLE_FIELDS, patch_of
from tests.support.reviews import make_request
from webhook.core.decision_input import facts_of
from webhook.core.patch.builder import PodPatch
from webhook.core.patch.self_check import PatchError, verify_patch


def test_the_self_check_does_not_mutate_the_received_pod() -> None:
    facts = facts_of(make_request(pod(container("a", "x"), volumes=[]), "ci").pod)
    patch = PodPatch(facts)
    patch.add_volume({"name": "podsettle-linger"})
    patch.put_init_container(HELPER, "first")
    assert patch.verified_operations(SETTABLE_FIELDS) == patch.verified_operations(SETTABLE_FIELDS)
    assert facts == facts_of(make_request(pod(container("a", "x"), volumes=[]), "ci").pod)


def test_a_patch_that_does_not_apply_is_rejected() -> None:
    patch = patch_of(pod(container("a"), containers=[container("main")]))
    patch.wrap("containers", 0, ["w"])  # It has no command.
    with pytest.raises(PatchError, match="does not apply"):
        patch.verified_operations(SETTABLE_FIELDS)


def test_a_move_of_an_absent_init_container_is_rejected() -> None:
    patch = patch_of(pod(container("a"), containers=[container("main")]))
    with pytest.raises(PatchError, match="no init container 7"):
        patch.move_init_container(7, "first")


def received() -> Json:
    """Return the part of a pod that a patch may touch."""
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
    "another class": lambda d: _set(d, "spec", "runtimeClassName", to="fast"),
    "a lost class": lambda d: d["spec"].pop("runtimeClassName"),
    "another change policy": lambda d: _set(
        d, "spec", "securityContext", "seLinuxChangePolicy", to="Recursive"
    ),
    "a lost change policy": lambda d: d["spec"]["securityContext"].clear(),
    "a security context": lambda d: _set(d, "spec", "securityContext", "runAsUser", to=0),
    "another restart policy": lambda d: _set(d, *INITS, 2, "restartPolicy", to="Never"),
    "a restart policy that retries": lambda d: _set(d, *INITS, 0, "restartPolicy", to="Always"),
    "a restart policy to rules": lambda d: _set(d, *INITS, 3, "restartPolicy", to="Never"),
    "other rules": lambda d: _set(d, *INITS, 3, "restartPolicyRules", to=[]),
    "rules alone": lambda d: _set(d, *INITS, 0, "restartPolicyRules", to=[{}]),
    "a restart policy of a regular container": lambda d: _set(
        d, *MAIN, "restartPolicy", to="Never"
    ),
    "another gate": lambda d: _set(d, *INITS, 4, "command", to=["/x"]),
    "a lost gate": lambda d: d["spec"]["initContainers"].pop(),
    "two gates": lambda d: d["spec"]["initContainers"].append(d["spec"]["initContainers"][4]),
    "a regular gate": lambda d: d["spec"]["containers"].append({"name": "podsettle-kubelet-gate"}),
    "a lost volume": lambda d: d["spec"]["volumes"].pop(),
    "lost volumes": lambda d: d["spec"].pop("volumes"),
    "a volume in front": lambda d: d["spec"]["volumes"].insert(0, {"name": "x"}),
    "two volumes": lambda d: d["spec"]["volumes"].extend([{"name": "x"}, {"name": "y"}]),
    "a foreign init container": lambda d: d["spec"]["initContainers"].insert(0, {"name": "x"}),
    "a lost init container": lambda d: d["spec"]["initContainers"].pop(0),
    "a renamed init container": lambda d: _set(d, *INITS, 0, "name", to="x"),
    "two helpers": lambda d: d["spec"]["initContainers"].extend([HELPER, HELPER]),
    "a helper that is not first": lambda d: d["spec"]["initContainers"].append(
        {"name": "podsettle-linger", "command": ["/linger"]}
    ),
    "a regular container": lambda d: d["spec"]["containers"].append({"name": "x"}),
    "a regular helper": lambda d: d["spec"]["containers"].append({"name": "podsettle-linger"}),
    "a lost container": lambda d: d["spec"]["containers"].pop(),
    "a renamed container": lambda d: _set(d, *MAIN, "name", to="x"),
    "another image": lambda d: _set(d, *MAIN, "image", to="x"),
    "args": lambda d: _set(d, *MAIN, "args", to=["x"]),
    "another command": lambda d: _set(d, *MAIN, "command", to=["w", "x"]),
    "a command with something behind": lambda d: _set(d, *MAIN, "command", to=["z", "w"]),
    "a lost command": lambda d: d["spec"]["containers"][0].pop("command"),
    "a command where there was none": lambda d: _set(d, *INITS, 1, "command", to=["w"]),
    "an empty command": lambda d: _set(d, *MAIN, "command", to=[]),
    "a lost mount": lambda d: _set(d, *MAIN, "volumeMounts", to=[]),
    "two mounts": lambda d: d["spec"]["containers"][0]["volumeMounts"].extend([{}, {}]),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_self_check_rejects_a_forbidden_change(what: str) -> None:
    after = copy.deepcopy(received())
    FORBIDDEN[what](after)
    with pytest.raises(PatchError, match="patch self-check failed"):
        verify_patch(received(), after, SETTABLE_FIELDS)


def test_the_self_check_accepts_every_kind_of_edit() -> None:
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
    verify_patch(before, after, SETTABLE_FIELDS)


@pytest.mark.parametrize("position", range(5))
def test_the_self_check_accepts_a_kubelet_gate_at_any_position(position: int) -> None:
    before = received()
    after = copy.deepcopy(before)
    after["spec"]["initContainers"].insert(position, after["spec"]["initContainers"].pop())
    verify_patch(before, after, SETTABLE_FIELDS)


@pytest.mark.parametrize("position", range(3))
def test_the_self_check_ignores_the_kubelet_gate_in_the_place_of_the_helper(position: int) -> None:
    before = received()
    gate = before["spec"]["initContainers"].pop()
    before["spec"]["initContainers"].insert(1, {"name": "podsettle-linger"})
    after = copy.deepcopy(before)
    after["spec"]["initContainers"].insert(position, gate)
    verify_patch(before, after, SETTABLE_FIELDS)
