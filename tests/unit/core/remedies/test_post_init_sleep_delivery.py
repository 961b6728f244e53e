"""Tests of how postInitSleep brings its wrapper to a container."""

from __future__ import annotations

import pytest

from tests.support.factories import (
    IMAGE,
    LINGER,
    MODERN,
    Json,
    container,
    decide_pod,
    mutate_pod,
    node,
    pod,
    reasons,
)
from tests.support.patches import changes
from tests.support.post_init_sleep import (
    HELPER,
    HELPER_VOLUME,
    MOUNT,
    QUICK,
    SHELL,
    container_names,
    init_containers,
    make_view,
)
from webhook.core.admission.decider import OperatorSettings
from webhook.core.defects.versions import Version
from webhook.core.remedies import shell_wrapper

STDIN = container("ask", "/bin/sh", stdin=True)
TTY = container("ask", "sh", tty=True)


@pytest.mark.parametrize(
    ("delivery", "found", "how"),
    [
        ("Auto", QUICK, "helper"),
        ("Auto", SHELL, "shell"),
        ("Auto", STDIN, "helper"),
        ("Auto", TTY, "helper"),
        ("Auto", SHELL | {"stdin": False, "tty": None}, "shell"),
        ("Shell", SHELL, "shell"),
        ("Binary", QUICK, "helper"),
        ("Binary", SHELL, "helper"),
        ("ImageVolume", QUICK, "image"),
        ("ImageVolume", SHELL, "image"),
    ],
)
def test_delivery_decides_how_the_wrapper_is_injected(delivery: str, found: Json, how: str) -> None:
    before = pod(found)
    after = mutate_pod(before, make_view(delivery=delivery))
    wrapped = init_containers(after)[-1]
    original = found["command"]
    assert wrapped["command"][-len(original) :] == original
    if how == "shell":
        assert shell_wrapper.is_wrapped(wrapped["command"])
        assert "volumes" not in after["spec"]
        assert container_names(init_containers(after)) == [found["name"]]
        return
    assert wrapped["command"] == [*LINGER, *original]
    assert wrapped["volumeMounts"] == [MOUNT]
    if how == "helper":
        assert after["spec"]["volumes"] == [HELPER_VOLUME]
        assert container_names(init_containers(after)) == [HELPER, found["name"]]
    else:
        image = {"reference": IMAGE, "pullPolicy": "IfNotPresent"}
        assert after["spec"]["volumes"] == [{"name": HELPER, "image": image}]
        assert container_names(init_containers(after)) == [found["name"]]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (QUICK, "NoShell"),
        (STDIN, "Interactive"),
        (TTY, "Interactive"),
        (container("a"), "NoCommand"),
    ],
)
def test_shell_delivery_never_injects_the_helper(found: Json, reason: str) -> None:
    decision = decide_pod(pod(found), make_view(delivery="Shell"))
    assert reasons(decision) == [f"{found['name']}: {reason}"]
    assert changes(decision) == []
    assert len(decision.warnings) == 1


@pytest.mark.parametrize(
    ("server", "nodes", "by_image"),
    [
        (Version(1, 36), [MODERN], True),
        (Version(1, 37), [MODERN], True),
        (None, [MODERN], True),  # A kubelet is never newer than its API server.
        (Version(1, 35), [MODERN], False),
        (Version(1, 36), [], False),
        (None, [], False),
        (Version(1, 36), [MODERN, node("old", "containerd://1.7.27", "v1.36.0")], False),
        (Version(1, 36), [MODERN, node("old", "containerd://2.1.5", "v1.35.0")], False),
    ],
)
def test_auto_uses_an_image_volume_if_every_node_supports_it(
    server: Version | None, nodes: list[Json], by_image: bool
) -> None:
    after = mutate_pod(pod(QUICK), make_view(*nodes, server=server, when="Always"))
    (volume,) = after["spec"]["volumes"]
    assert ("image" in volume) is by_image
    assert len(init_containers(after)) == (1 if by_image else 2)


def test_binary_copies_the_helper_even_if_nodes_support_image_volumes() -> None:
    after = mutate_pod(
        pod(QUICK), make_view(MODERN, server=Version(1, 36), when="Always", delivery="Binary")
    )
    assert after["spec"]["volumes"] == [HELPER_VOLUME]


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (Version(1, 34, 9), "ServerTooOld"),
        (Version(1, 35, 0, final=False), "ServerTooOld"),
        (Version(1, 35), "Applied"),
        (Version(1, 36), "Applied"),
        (None, "Applied"),
    ],
)
def test_image_volume_needs_a_server_that_supports_it(server: Version | None, reason: str) -> None:
    decision = decide_pod(pod(QUICK), make_view(server=server, delivery="ImageVolume"))
    assert reasons(decision) == [f"prepare: {reason}"]


@pytest.mark.parametrize(
    "old",
    [
        node("old", "containerd://1.7.27", "v1.36.0"),
        node("old", "containerd://2.1.5", "v1.30.0"),
        node("old", "cri-o://1.30.1", "v1.30.1"),
    ],
    ids=["the runtime", "the kubelet", "both"],
)
def test_image_volume_needs_nodes_that_support_it(old: Json) -> None:
    """`ServerTooOld`: the API server or a node does not support what the remedy needs."""
    look = make_view(old, server=Version(1, 36), delivery="ImageVolume", when="Always")
    decision = decide_pod(pod(QUICK), look)
    assert reasons(decision) == ["prepare: ServerTooOld"]
    assert changes(decision) == []


@pytest.mark.parametrize("delivery", ["Auto", "Binary", "ImageVolume"])
def test_only_shells_are_wrapped_without_a_helper_image(delivery: str) -> None:
    decision = decide_pod(pod(QUICK), make_view(delivery=delivery), settings=OperatorSettings())
    assert reasons(decision) == ["prepare: HelperImageMissing"]
    assert changes(decision) == []
    shell = decide_pod(pod(SHELL), make_view(delivery="Auto"), settings=OperatorSettings())
    assert reasons(shell) == ["script: Applied"]
