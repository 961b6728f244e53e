"""What the quick self-check allows, the check that applies the patch allows too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.factories import Json, container, pod
from tests.support.patches import OWN
from tests.support.reviews import make_request
from webhook.core.decision_input import facts_of
from webhook.core.patch.received_command import ContainerList, received_command
from webhook.core.patch.self_check import PatchError, verify_operations
from webhook.core.patch.usual_patch import is_usual_and_allowed

HELPER: Json = {"name": "podsettle-linger"}
KEY = "/metadata/annotations/podsettle.dev~1"
COMMANDS = st.sampled_from([None, [], ["x"], ["sh", "-c", "y"], ["/podsettle/linger", "--", "z"]])
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "b", "sidecar-c", "podsettle-linger", "podsettle-gate"])},
        optional={
            "command": COMMANDS,
            "volumeMounts": st.sampled_from([None, [], [{"name": "v", "mountPath": "/v"}]]),
            "restartPolicy": st.just("Always"),
        },
    ),
    max_size=3,
)
DOCUMENTS = st.fixed_dictionaries(
    {
        "metadata": st.sampled_from([{}, {"annotations": {}}, {"annotations": {OWN: "p/r"}}]),
        "spec": st.fixed_dictionaries(
            {"containers": CONTAINERS},
            optional={
                "initContainers": CONTAINERS,
                "volumes": st.sampled_from([[], [{"name": "v"}], [HELPER]]),
            },
        ),
    }
)
PLACES = st.tuples(
    st.sampled_from(["initContainers", "containers"]), st.sampled_from(["0", "1", "2", "01", "-"])
)
PATHS = st.one_of(
    st.sampled_from([KEY + "applied", KEY + "summary", KEY + "other", "/metadata/annotations"]),
    st.sampled_from(["/spec/volumes/-", "/spec/volumes", "/spec/volumes/0", "/spec/hostNetwork"]),
    st.sampled_from(["/spec/initContainers/0", "/spec/initContainers/1", "/spec/initContainers"]),
    st.builds(
        lambda place, field: f"/spec/{place[0]}/{place[1]}/{field}",
        PLACES,
        st.sampled_from(["command", "command/-", "args", "volumeMounts", "volumeMounts/-", "name"]),
    ),
)
MARKS: list[tuple[ContainerList, int]] = [("initContainers", 0), ("initContainers", 1),
                                          ("containers", 0)]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(["text", "", "\x1b[2J", "x" * 5_000, 5, None, [HELPER], HELPER, [], {}]),
    st.sampled_from(MARKS).map(lambda place: ["w", received_command(*place)]),
    st.just(["w"]),
)
OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "add", "replace"]), "path": PATHS, "value": VALUES}
    ),
    min_size=1,
    max_size=4,
)


def received_part(document: Json) -> Json:
    """Return what a patch may touch, with places for the commands."""
    spec = {**document["spec"]}
    for where in ("initContainers", "containers"):
        if where in spec:
            spec[where] = [_part(each, where, index) for index, each in enumerate(spec[where])]
    return {"metadata": document["metadata"], "spec": spec}


def _part(fields: Json, where: Any, index: int) -> Json:
    part = {key: value for key, value in fields.items() if value is not None}
    if part.get("command"):
        part["command"] = [received_command(where, index)]
    else:
        part.pop("command", None)
    return part


@given(DOCUMENTS, OPERATIONS)
def test_what_the_quick_check_allows_applies_and_is_allowed(
    document: Json, operations: list[Json]
) -> None:
    facts = facts_of(make_request(document, "ci").pod)
    try:
        is_allowed = is_usual_and_allowed(facts, operations)
    except PatchError:
        return
    if is_allowed:
        verify_operations(received_part(document), operations, ())


ONE = pod(container("a", "x"), annotations={}, volumes=[{"name": "v"}])
WRAPPED = {
    "op": "replace",
    "path": "/spec/initContainers/0/command",
    "value": ["w", received_command("initContainers", 0)],
}


MOUNT = {"op": "add", "path": "/spec/initContainers/0/volumeMounts", "value": [HELPER]}
APPENDED = MOUNT | {"path": "/spec/containers/0/volumeMounts/-", "value": HELPER}
VOLUME = {"op": "add", "path": "/spec/volumes/-", "value": HELPER}
INSERTION = {"op": "add", "path": "/spec/initContainers/0", "value": HELPER}
USUAL = pod(
    container("a", "x"),
    containers=[container("main", volumeMounts=[]), container("sidecar-b")],
    annotations={},
    volumes=[],
)
HELPED = pod(container("podsettle-linger", "/linger"), annotations={}, volumes=[HELPER])


@pytest.mark.parametrize(
    ("usual", "document", "other"),
    [
        (WRAPPED, USUAL, WRAPPED | {"op": "add"}),
        (WRAPPED, USUAL, WRAPPED | {"value": ["w"]}),
        (WRAPPED, USUAL, WRAPPED | {"value": ["w", received_command("containers", 0)]}),
        (WRAPPED, USUAL, WRAPPED | {"path": "/spec/initContainers/1/command"}),
        (WRAPPED, USUAL, WRAPPED | {"path": "/spec/containers/0/command"}),
        (WRAPPED, HELPED, WRAPPED),
        (MOUNT, USUAL, MOUNT | {"value": [HELPER, HELPER]}),
        (MOUNT, USUAL, MOUNT | {"value": "x"}),
        (MOUNT, USUAL, MOUNT | {"value": 5}),
        (MOUNT, USUAL, MOUNT | {"path": "/spec/containers/0/volumeMounts"}),
        (MOUNT, USUAL, MOUNT | {"path": "/spec/containers/1/volumeMounts"}),
        (APPENDED, USUAL, APPENDED | {"path": "/spec/initContainers/0/volumeMounts/-"}),
        (VOLUME, HELPED, VOLUME),
        (VOLUME, USUAL, VOLUME | {"value": {"name": "v"}}),
        (VOLUME, USUAL, VOLUME | {"op": "replace"}),
        (INSERTION, HELPED, INSERTION),
        (INSERTION, pod(initContainers=None), INSERTION),
        (INSERTION, USUAL, INSERTION | {"path": "/spec/initContainers/1"}),
        (INSERTION, USUAL, {"op": "add", "path": "/spec/runtimeClassName", "value": "fast"}),
    ],
)
def test_an_operation_of_another_kind_is_not_usual(
    usual: Json, document: Json, other: Json
) -> None:
    assert is_usual_and_allowed(facts_of(make_request(USUAL, "ci").pod), [usual])
    assert not is_usual_and_allowed(facts_of(make_request(document, "ci").pod), [other])


def test_no_command_is_wrapped_after_the_helper_was_inserted() -> None:
    facts = facts_of(make_request(ONE, "ci").pod)
    assert is_usual_and_allowed(facts, [WRAPPED, INSERTION])
    assert not is_usual_and_allowed(facts, [INSERTION, WRAPPED])
    assert not is_usual_and_allowed(facts, [WRAPPED, WRAPPED])
