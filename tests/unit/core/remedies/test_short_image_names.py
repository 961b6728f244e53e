"""Tests of images whose name does not say what a node runs: short names and placeholders."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    Json,
    container,
    decide_pod,
    node,
    pod,
    policy,
    reasons,
    runtime_class,
    view,
)
from webhook.core.images import ImageConfig
from webhook.core.policy.snapshot import Snapshot

REGISTRIES = ["docker.io", "quay.io", "localhost"]
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
CONTAINERD, DOCKER = "containerd://2.1.5", "docker://27.0.1"
CRIO, UNKNOWN = "cri-o://1.36.3", ""
SHORT = ["busybox", "busybox:1.37", "ubi9/nodejs-22:1", "a/b/c", f"busybox@{DIGEST}", "Team/app"]
WHOLE = ["docker.io/busybox", "quay.io/ubi9/nodejs-22:1", "localhost/x", f"quay.io/a@{DIGEST}"]
LOOKED_UP, LEFT = ["main: ImageConfigUnavailable"], ["main: ShortImageName"]


def seen(*runtimes: str, nodes: list[Json] | None = None) -> Snapshot:
    with_lookup = policy(
        imageConfig={"lookup": "Registry", "registries": REGISTRIES, "mirrors": {"team": "m"}},
        remedies={"postInitSleep": {"containers": ["*"], "when": "Always"}},
    )
    listed = [node(f"n{index}", runtime) for index, runtime in enumerate(runtimes)]
    classes = [runtime_class("fast", selector={"pool": "fast"})]
    return view(with_lookup, nodes=listed if nodes is None else nodes, classes=classes)


def main(image: str, **spec: Any) -> Json:
    return pod(containers=[container("main", image=image)], restartPolicy="Never", **spec)


@pytest.mark.parametrize("image", SHORT)
@pytest.mark.parametrize(
    "runtimes",
    [[CRIO], [UNKNOWN], ["other://1.0"], [CONTAINERD, CRIO], [DOCKER, UNKNOWN], []],
)
def test_short_name_is_left_if_the_node_may_choose_its_registry(
    image: str, runtimes: list[str]
) -> None:
    decision = decide_pod(main(image), seen(*runtimes))
    assert reasons(decision) == LEFT
    assert decision.missing_images == ()
    assert decision.operations[0]["path"] == "/metadata/annotations"  # It says why.
    assert len(decision.operations) == 1
    assert "ShortImageName: main" in decision.warnings[0]


@pytest.mark.parametrize("image", SHORT)
@pytest.mark.parametrize("runtimes", [[CONTAINERD], [DOCKER], [CONTAINERD, DOCKER]])
def test_short_name_is_looked_up_if_every_node_takes_it_from_docker_hub(
    image: str, runtimes: list[str]
) -> None:
    decision = decide_pod(main(image), seen(*runtimes))
    assert reasons(decision) == LOOKED_UP
    assert [query.image for query in decision.missing_images] == [image]


@pytest.mark.parametrize("image", [*WHOLE, "Not An Image"])
@pytest.mark.parametrize("runtimes", [[CRIO], [UNKNOWN], [CONTAINERD, CRIO], []])
def test_other_names_are_looked_up_on_every_runtime(image: str, runtimes: list[str]) -> None:
    assert reasons(decide_pod(main(image), seen(*runtimes))) == LOOKED_UP


def test_only_the_nodes_count_that_the_pod_could_land_on() -> None:
    nodes = [
        node("a", CONTAINERD, labels={"pool": "plain"}),
        node("b", CRIO, labels={"pool": "fast"}),
    ]
    cluster = seen(nodes=nodes)
    assert reasons(decide_pod(main("busybox"), cluster)) == LEFT
    for selector, expected in (({"pool": "plain"}, LOOKED_UP), ({"pool": "fast"}, LEFT)):
        assert reasons(decide_pod(main("busybox", nodeSelector=selector), cluster)) == expected
    assert reasons(decide_pod(main("busybox", nodeName="a"), cluster)) == LOOKED_UP
    # No known node has this label, so the pod waits for one that podsettle does not know.
    assert reasons(decide_pod(main("busybox", nodeSelector={"pool": "new"}), cluster)) == LEFT


def test_command_of_docker_hub_is_not_written_into_a_pod_for_a_node_with_cri_o() -> None:
    image = "ubi9/nodejs-22:1"
    plain = seen(CONTAINERD)
    asked = decide_pod(main(image), plain).missing_images
    known = dict.fromkeys(asked, ImageConfig(("/hub",), ()))
    assert reasons(decide_pod(main(image), plain, images=known)) == ["main: Applied"]
    assert reasons(decide_pod(main(image), seen(CRIO), images=known)) == LEFT


PLACEHOLDERS = [
    # Drone: engine/convert.go and engine/const.go of drone-runner-kube
    "docker.io/drone/placeholder:1", "drone/placeholder", "m.example:5000/hub/drone/placeholder:1",
    # Vela: runtime/kubernetes/image.go of go-vela/worker
    "docker.io/kubernetes/pause:latest", f"registry.k8s.io/pause@{DIGEST}", "pause:3.10",
    # Istio fills in the image of a proxy that a pod's author customizes.
    "auto",
]  # fmt: skip
OTHER_IMAGES = [
    "docker.io/team/placeholder",
    "docker.io/pause/app",
    "team/auto",
    "auto:1",
    "unpause",
]


def cluster() -> Snapshot:
    lookup = {"lookup": "Registry", "registries": ["*", "*:*"]}
    remedies: Json = {
        "postInitSleep": {"containers": ["*"], "when": "Always"},
        "openFiles": {"soft": 1000},
    }
    nodes = [node("a", "containerd://2.1.5")]
    return view(policy(imageConfig=lookup, remedies=remedies), nodes=nodes)


def pod_of(image: str, **fields: object) -> Json:
    return pod(containers=[container("pod_of", image=image, **fields)], restartPolicy="Never")


@pytest.mark.parametrize("image", PLACEHOLDERS)
@pytest.mark.parametrize("fields", [{}, {"args": ["/bin/sh", "-c", "echo"]}])
def test_placeholder_is_not_looked_up(image: str, fields: Json) -> None:
    decision = decide_pod(pod_of(image, **fields), cluster())
    assert decision.missing_images == ()
    assert reasons(decision) == ["pod_of: NoCommand", "pod_of: NoCommand"]
    assert "placeholder" in str(decision.outcomes[0])


@pytest.mark.parametrize("image", OTHER_IMAGES)
def test_other_image_is_looked_up_and_its_command_is_used(image: str) -> None:
    asked = decide_pod(pod_of(image), cluster()).missing_images
    known = dict.fromkeys(asked, ImageConfig(("/app",), ()))
    decision = decide_pod(pod_of(image), cluster(), images=known)
    assert reasons(decision) == ["pod_of: Applied", "pod_of: Applied"]
