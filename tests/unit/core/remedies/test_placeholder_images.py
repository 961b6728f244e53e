"""Tests that podsettle takes no command from an image that another program replaces later."""

from __future__ import annotations

import pytest

from tests.support.factories import (
    Json,
    container,
    decide_pod,
    node,
    pod,
    policy,
    reasons,
    view,
)
from webhook.core.images import ImageConfig
from webhook.core.policy.snapshot import Snapshot

DIGEST = f"sha256:{'0123456789abcdef' * 4}"
PLACEHOLDERS = [
    # Drone: engine/convert.go and engine/const.go of drone-runner-kube
    "docker.io/drone/placeholder:1", "drone/placeholder", "m.example:5000/hub/drone/placeholder:1",
    # Vela: runtime/kubernetes/image.go of go-vela/worker
    "docker.io/kubernetes/pause:latest", f"registry.k8s.io/pause@{DIGEST}", "pause:3.10",
    # Istio fills in the image of a proxy that a pod's author customizes.
    "auto",
]  # fmt: skip
OTHERS = ["docker.io/team/placeholder", "docker.io/pause/app", "team/auto", "auto:1", "unpause"]


def cluster() -> Snapshot:
    lookup = {"lookup": "Registry", "registries": ["*", "*:*"]}
    remedies: Json = {
        "postInitSleep": {"containers": ["*"], "when": "Always"},
        "openFiles": {"soft": 1000},
    }
    nodes = [node("a", "containerd://2.1.5")]
    return view(policy(imageConfig=lookup, remedies=remedies), nodes=nodes)


def main(image: str, **fields: object) -> Json:
    return pod(containers=[container("main", image=image, **fields)], restartPolicy="Never")


@pytest.mark.parametrize("image", PLACEHOLDERS)
@pytest.mark.parametrize("fields", [{}, {"args": ["/bin/sh", "-c", "echo"]}])
def test_placeholder_is_not_looked_up(image: str, fields: Json) -> None:
    decision = decide_pod(main(image, **fields), cluster())
    assert decision.missing_images == ()
    assert reasons(decision) == ["main: NoCommand", "main: NoCommand"]
    assert "placeholder" in str(decision.outcomes[0])


@pytest.mark.parametrize("image", OTHERS)
def test_other_image_is_looked_up_and_its_command_is_used(image: str) -> None:
    asked = decide_pod(main(image), cluster()).missing_images
    known = dict.fromkeys(asked, ImageConfig(("/app",), ()))
    decision = decide_pod(main(image), cluster(), images=known)
    assert reasons(decision) == ["main: Applied", "main: Applied"]


def test_placeholder_with_a_command_of_its_pod_is_wrapped() -> None:
    step = main("drone/placeholder:1", command=["/bin/sh", "-c"], args=["echo $DRONE_SCRIPT"])
    assert reasons(decide_pod(step, cluster())) == ["main: Applied", "main: Applied"]
