"""Fields of the spec are set where the pod has none, and their parents are created once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import Json, pod
from tests.support.patches import (
    CHANGE_POLICY,
    RUNTIME_CLASS,
    SETTABLE_FIELDS,
    applied,
    patch_of,
)
from webhook.core.patch.self_check import PatchError

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS = f"/spec/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms"
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


def test_fields_below_an_absent_parent_are_set_by_one_operation() -> None:
    level = "/spec/securityContext/seLinuxOptions/level"
    kind = "/spec/securityContext/seLinuxOptions/type"
    document = pod()
    patch = patch_of(document)
    for path, value in ((level, "s0"), (CHANGE_POLICY, "Recursive"), (kind, "spc_t")):
        patch.set_field(path, value)
    assert len(patch.operations()) == 1
    fields = SETTABLE_FIELDS | {level, kind}
    assert applied(document, patch, fields)["spec"]["securityContext"] == {
        "seLinuxOptions": {"level": "s0", "type": "spc_t"},
        "seLinuxChangePolicy": "Recursive",
    }


@pytest.mark.parametrize(
    ("path", "empty", "value"),
    [
        ("/spec/nodeSelector", {"nodeSelector": {}}, {"disk": "ssd"}),
        (
            TERMS,
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}},
            [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}],
        ),
    ],
)
def test_an_empty_list_or_map_is_replaced(path: str, empty: Json, value: Any) -> None:
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
    ],
)
def test_a_field_that_no_struct_declares_cannot_be_set(path: str) -> None:
    for document in (pod(), pod(securityContext={}, nodeSelector={"a": "b"})):
        with pytest.raises(PatchError, match="is not a declared field"):
            patch_of(document).set_field(path, "x")
