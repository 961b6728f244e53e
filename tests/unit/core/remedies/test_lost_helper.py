"""Pods whose helper was removed, as from a copy, and pods that bring one of their own."""

from __future__ import annotations

from copy import deepcopy
from itertools import product
from typing import Any

import pytest

from tests.support.factories import (
    IMAGE,
    MODERN,
    Json,
    container,
    decide_pod,
    mutate_pod,
    pod,
    policy,
    reasons,
    view,
)
from tests.support.post_init_sleep import HELPER, container_names
from webhook.core.admission.decider import OperatorSettings
from webhook.core.admission.summary import summary_of
from webhook.core.constants import HELPER_IN_IMAGE, HELPER_PATH
from webhook.core.policy.snapshot import Snapshot

SLEEP: Json = {"postInitSleep": {"containers": ["*"], "when": "Always"}}
LIMITS: Json = {"openFiles": {"soft": 4096, "initContainers": ["*"]}}
REMEDIES = [SLEEP, LIMITS, SLEEP | LIMITS]
DEBUGGER = {"name": "debugger-x", "image": "busybox", "stdin": True, "tty": True}


def seen(remedies: Json, *nodes: Json, **settings: Any) -> Snapshot:
    chosen = {name: each | settings for name, each in remedies.items()}
    return view(policy(remedies=chosen), nodes=nodes)


def settled(remedies: Json, **settings: Any) -> Json:
    before = pod(
        container("prepare", "sh", "-c", "true"),
        containers=[container("main", "/main"), container("side", "/side")],
        restartPolicy="Never",
    )
    return mutate_pod(before, seen(remedies, **settings))


def debug_copy(document: Json, *added: Json) -> Json:
    """Return the copy of `kubectl debug --copy-to --keep-init-containers=false`."""
    metadata = {"name": "copy", "annotations": document["metadata"]["annotations"]}
    spec = {key: each for key, each in document["spec"].items() if key != "initContainers"}
    return {**document, "metadata": metadata, "spec": spec | {
        "containers": [*spec["containers"], *added]
    }}  # fmt: skip


@pytest.mark.parametrize("remedies", REMEDIES, ids="-".join)
@pytest.mark.parametrize("added", [(), (DEBUGGER,)], ids=["image", "debugger"])
def test_copy_without_init_containers_gets_the_helper_again(
    remedies: Json, added: tuple[Json, ...]
) -> None:
    original = settled(remedies, delivery="Binary")
    copy = debug_copy(original, *added)
    decision = decide_pod(copy, seen(remedies, delivery="Binary"))
    assert {"main: Applied", "side: Applied"} <= {*reasons(decision)}
    after = mutate_pod(copy, seen(remedies, delivery="Binary"))
    assert container_names(after["spec"]["initContainers"]) == [HELPER]
    (helper,) = after["spec"]["initContainers"]
    assert helper["args"] == ["install", "/podsettle/linger"]
    assert helper["image"] == IMAGE
    assert after["spec"]["containers"] == copy["spec"]["containers"]
    assert after["spec"]["volumes"] == copy["spec"]["volumes"]
    assert "main and side are given the helper again" in summary_of(decision.outcomes)


def test_helper_is_delivered_again_for_a_container_that_the_policy_does_not_select() -> None:
    copy = debug_copy(settled(LIMITS, delivery="Binary"))
    other = seen({"openFiles": {"soft": 9, "containers": ["side"]}}, delivery="Binary")
    after = mutate_pod(copy, other)
    assert container_names(after["spec"]["initContainers"]) == [HELPER]
    nothing = seen({"openFiles": {"soft": 9, "containers": ["debugger-*"]}}, delivery="Binary")
    assert reasons(decide_pod(copy, nothing)) == ["main: Applied", "side: Applied"]
    after = mutate_pod(copy, nothing)
    assert container_names(after["spec"]["initContainers"]) == [HELPER]


@pytest.mark.parametrize(
    ("image", "reason", "message"),
    [
        (None, "HelperImageMissing", "cannot start"),
        ("registry.example/linger:0.1.0", "HelperTooOld", "version 0.2.0 or later"),
    ],
)
def test_copy_that_cannot_get_the_helper_again_has_a_warning_that_says_so(
    image: str | None, reason: str, message: str
) -> None:
    copy = debug_copy(settled(LIMITS, delivery="Binary"))
    decision = decide_pod(copy, seen(LIMITS), settings=OperatorSettings(linger_image=image))
    assert reasons(decision) == [f"main: {reason}", f"side: {reason}"]
    assert message in decision.outcomes[0].message
    assert len(decision.warnings) == 1


def test_copy_with_the_helper_in_an_image_volume_lacks_nothing() -> None:
    copy = debug_copy(settled(LIMITS, delivery="ImageVolume"))
    decision = decide_pod(copy, seen(LIMITS, delivery="ImageVolume"))
    assert reasons(decision) == ["main: AlreadySettled", "side: AlreadySettled"]


@pytest.mark.parametrize("selected", ["*", "side", "debugger-*"])
@pytest.mark.parametrize("lost", ["mount", "everything"])
@pytest.mark.parametrize("delivery", ["Binary", "ImageVolume"])
@pytest.mark.parametrize("remedies", REMEDIES, ids="-".join)
def test_containers_that_lost_their_mount_get_it_again(
    remedies: Json, delivery: str, lost: str, selected: str
) -> None:
    original = settled(remedies, delivery=delivery)
    copy = deepcopy(original)
    del copy["spec"]["containers"][0]["volumeMounts"]
    if lost == "everything":
        del copy["spec"]["containers"][1]["volumeMounts"], copy["spec"]["volumes"]
        copy["spec"]["initContainers"] = copy["spec"]["initContainers"][-1:]
    asked = seen(
        {name: {**each, "containers": [selected]} for name, each in remedies.items()},
        delivery=delivery,
    )
    assert "main: Applied" in reasons(decide_pod(copy, asked))
    assert mutate_pod(copy, asked)["spec"] == original["spec"]


@pytest.mark.parametrize("delivery", ["Binary", "ImageVolume"])
@pytest.mark.parametrize("remedies", REMEDIES, ids="-".join)
def test_container_with_the_mount_alone_is_wrapped(remedies: Json, delivery: str) -> None:
    """`kubectl debug --copy-to -c main -- /tool` replaces a command, and the OpenTelemetry
    operator's clone of a container (`internal/instrumentation/apachehttpd.go`) has its mounts."""
    known = seen(remedies, delivery=delivery)
    original = settled(remedies, delivery=delivery)
    copy = deepcopy(original)
    main = copy["spec"]["containers"][0]
    main["command"] = ["/tool"]
    clone = container("clone", "cp", "-r", "/x", "/y", volumeMounts=main["volumeMounts"])
    copy["spec"]["initContainers"].append(clone)
    decision = decide_pod(copy, known)
    assert {"main: Applied", "clone: Applied"} <= {*reasons(decision)}
    assert decision.warnings == []
    after = mutate_pod(copy, known)["spec"]["containers"][0]
    assert after["command"][0] == HELPER_PATH
    assert after["volumeMounts"] == main["volumeMounts"]


COMMANDS: tuple[list[str] | None, ...] = (
    None,
    ["/x"],
    [HELPER_IN_IMAGE],
    [HELPER_IN_IMAGE, "--min-lifetime", "1s", "--", HELPER_IN_IMAGE],
    [HELPER_PATH, "--", HELPER_IN_IMAGE],
)
IMAGES = IMAGE, "i"
VOLUMES: tuple[Json | None, ...] = (
    None,
    {"emptyDir": {}},
    {"image": {"reference": "i"}},
    {"image": {"reference": IMAGE}},
    {"configMap": {}},
    {"emptyDir": {}, "image": {}},
    {"emptyDir": {}, "image": {"reference": IMAGE}},
)


def pod_with(position: int, command: list[str] | None, image: str, volume: Json | None) -> Json:
    """Return a pod with two init containers, the brought one, and the main container."""
    inits = [container("early", "/early"), container("late", HELPER_PATH, "--", "/late")]
    inits.insert(position, container(HELPER, *(command or ()), image=image))
    volumes = [] if volume is None else [{"name": HELPER, **volume}]
    main = container("main", "/main")
    return pod(*inits, containers=[main], restartPolicy="Never", volumes=volumes)


@pytest.mark.parametrize("delivery", ["Auto", "Binary", "ImageVolume"])
def test_image_volume_from_which_no_container_starts_the_helper_is_another_one(
    delivery: str,
) -> None:
    document = pod_with(0, None, IMAGE, {"image": {"reference": "registry.example/other:1"}})
    document["spec"]["initContainers"] = [container("early", "/early")]
    decided = decide_pod(document, seen(SLEEP | LIMITS, MODERN, delivery=delivery))
    assert {"early: NameConflict", "main: NameConflict"} <= {*reasons(decided)}


def delivered_image(pod: Json) -> str:
    """Return the image that delivers the helper to the pod's containers."""
    (volume,) = pod["spec"]["volumes"]
    if "image" in volume:
        return str(volume["image"]["reference"])
    return next(str(c["image"]) for c in pod["spec"]["initContainers"] if c["name"] == HELPER)


@pytest.mark.parametrize("delivery", ["Auto", "Binary", "ImageVolume"])
@pytest.mark.parametrize("remedies", REMEDIES, ids="-".join)
def test_second_call_changes_nothing_and_the_named_image_delivers_the_helper(
    delivery: str, remedies: Json
) -> None:
    for nodes in ([], [MODERN]):
        known = seen(remedies, *nodes, delivery=delivery)
        for brought in product((0, 2), COMMANDS, IMAGES, VOLUMES):
            document = pod_with(*brought)
            after = mutate_pod(document, known)
            for outcome in decide_pod(document, known).outcomes:
                _, named, image = outcome.message.partition("wrapped by the helper from ")
                assert not named or image == delivered_image(after), brought


def test_path_of_the_helper_as_an_argument_of_a_program_starts_no_helper() -> None:
    copies = container("main", "sh", "-c", "true", args=["cp", "/linger", HELPER_PATH])
    after = mutate_pod(pod(containers=[copies]), seen(LIMITS))
    assert after["spec"]["containers"][0]["command"] != copies["command"]
