"""Pods that bring an init container or a volume with the helper's name."""

from __future__ import annotations

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
    policy,
    reasons,
    view,
)
from webhook.core.constants import HELPER, HELPER_IN_IMAGE, HELPER_PATH
from webhook.core.policy.snapshot import Snapshot

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
REMEDIES: tuple[tuple[str, ...], ...] = (
    ("openFiles",),
    ("postInitSleep",),
    ("postInitSleep", "openFiles"),
)


def wrapping(delivery: str, names: tuple[str, ...], nodes: list[Json]) -> Snapshot:
    settings: Json = {
        "postInitSleep": {"containers": ["*"], "when": "Always", "delivery": delivery},
        "openFiles": {"soft": 4096, "initContainers": ["*"], "delivery": delivery},
    }
    return view(policy(remedies={name: settings[name] for name in names}), nodes=nodes)


def pod_with(position: int, command: list[str] | None, image: str, volume: Json | None) -> Json:
    """Return a pod with two init containers, the brought one, and the main container."""
    brought = {"name": HELPER, "image": image} | ({"command": command} if command else {})
    inits: list[Any] = [container("early", "/early"), container("late", HELPER_PATH, "--", "/late")]
    inits.insert(position, brought)
    spec = {
        "restartPolicy": "Never",
        "initContainers": inits,
        "containers": [container("main", "/main")],
    }
    if volume is not None:
        spec["volumes"] = [{"name": HELPER, **volume}]
    return {"metadata": {"name": "p"}, "spec": spec}


def delivered_image(pod: Json) -> str:
    """Return the image that delivers the helper to the pod's containers."""
    (volume,) = pod["spec"]["volumes"]
    if "image" in volume:
        return str(volume["image"]["reference"])
    return next(str(c["image"]) for c in pod["spec"]["initContainers"] if c["name"] == HELPER)


@pytest.mark.parametrize("delivery", ["Auto", "Binary", "ImageVolume"])
@pytest.mark.parametrize("names", REMEDIES, ids="-".join)
def test_second_call_changes_nothing_and_the_named_image_delivers_the_helper(
    delivery: str, names: tuple[str, ...]
) -> None:
    for nodes in ([], [MODERN]):
        seen = wrapping(delivery, names, nodes)
        for brought in product((0, 2), COMMANDS, IMAGES, VOLUMES):
            pod = pod_with(*brought)
            decided = decide_pod(pod, seen)
            after = mutate_pod(pod, seen)
            assert decide_pod(after, seen).operations == (), brought
            for outcome in decided.outcomes:
                _, named, image = outcome.message.partition("wrapped by the helper from ")
                assert not named or image == delivered_image(after), brought


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("position", range(3))
def test_init_container_without_the_volume_of_the_helper_is_another_one(
    command: list[str] | None, position: int
) -> None:
    pod = pod_with(position, command, IMAGE, None)
    decided = decide_pod(pod, wrapping("Auto", REMEDIES[-1], [MODERN]))
    assert {"early: NameConflict", "main: NameConflict"} <= {*reasons(decided)}
    after = mutate_pod(pod, wrapping("Auto", REMEDIES[-1], [MODERN]))
    assert after["spec"]["initContainers"] == pod["spec"]["initContainers"]
