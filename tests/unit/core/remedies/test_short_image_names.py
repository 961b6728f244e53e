"""Tests that podsettle looks up a name without a registry only if all nodes read it alike."""

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


def test_nodes_of_a_runtime_class_that_podsettle_sets_count() -> None:
    nodes = [
        node("a", CRIO, labels={"pool": "plain"}),
        node("b", CONTAINERD, labels={"pool": "fast"}),
    ]
    both = policy(
        imageConfig={"lookup": "Registry", "registries": REGISTRIES},
        remedies={
            "runtimeClass": {"name": "fast"},
            "postInitSleep": {"containers": ["*"], "when": "Always"},
        },
    )
    cluster = view(both, nodes=nodes, classes=[runtime_class("fast", selector={"pool": "fast"})])
    decision = decide_pod(main("busybox"), cluster)
    assert [query.image for query in decision.missing_images] == ["busybox"]


def test_command_of_docker_hub_is_not_written_into_a_pod_for_a_node_with_cri_o() -> None:
    image = "ubi9/nodejs-22:1"
    plain = seen(CONTAINERD)
    asked = decide_pod(main(image), plain).missing_images
    known = dict.fromkeys(asked, ImageConfig(("/hub",), ()))
    assert reasons(decide_pod(main(image), plain, images=known)) == ["main: Applied"]
    assert reasons(decide_pod(main(image), seen(CRIO), images=known)) == LEFT


@pytest.mark.parametrize("fields", [{"command": ["/app"]}, {"args": ["x"], "command": ["/app"]}])
def test_name_of_the_image_does_not_matter_if_the_pod_has_the_command(fields: Json) -> None:
    new = pod(containers=[container("main", image="busybox", **fields)], restartPolicy="Never")
    assert reasons(decide_pod(new, seen(CRIO))) == ["main: Applied"]
