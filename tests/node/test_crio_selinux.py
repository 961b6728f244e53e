"""Tests of `podsettle node-config crio` in a real CRI-O.

SELinux is not needed: a pod skips the relabelling if CRI-O leaves the annotation on its sandbox.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import pytest
import yaml

from tests.support.factories import Json, policy_document
from tests.support.node.crio import Crio
from tests.support.node.node import TIMEOUT_SECONDS, RealNode
from tests.support.node.node_pool import NodePool
from tests.support.node.optional_builds import crio_or_skip
from tests.support.node.release import previewed
from tests.support.node_config import CRIO, printed, selinux_drop_in
from tests.support.waiting import await_that
from tools.crio import AFFECTED
from webhook.core.constants import SKIP_RELABEL_ANNOTATIONS
from webhook.node_config.crio import DROP_IN

CLASS = "selinux-fix-runtime-class"
HANDLER = "selinux-fix-runtime"
OLD_SPELLING = SKIP_RELABEL_ANNOTATIONS[0]


class PodKind(NamedTuple):
    """What a pod has when it reaches the node."""

    is_annotated: bool
    """By podsettle."""
    has_class: bool


class Mode(NamedTuple):
    """A configuration that `podsettle node-config crio` prints, and two kinds of pods."""

    options: tuple[str, ...]
    kept: PodKind
    """A pod for whose sandbox CRI-O keeps or sets the annotation."""
    dropped: PodKind
    """A pod whose sandbox does not have it."""


HANDLER_MODE = Mode((), PodKind(True, True), PodKind(True, False))
MODES = {
    "handler": HANDLER_MODE,
    "handler-with-oldest": HANDLER_MODE._replace(options=("--oldest", AFFECTED)),
    "workload": Mode(("--mode", "workload"), PodKind(True, False), PodKind(False, False)),
    "default-annotations": Mode(
        ("--mode", "default-annotations", "--oldest", AFFECTED),
        PodKind(False, True),
        PodKind(False, False),
    ),
}


@pytest.fixture(scope="module")
def node(nodes: NodePool) -> Iterator[RealNode]:
    with nodes.own(Crio(crio_or_skip(AFFECTED))) as own:
        runtime_class = yaml.safe_load(printed(*CRIO, "-o", "runtimeclass"))
        own.cluster.create("/apis/node.k8s.io/v1/runtimeclasses", runtime_class)
        yield own


@contextmanager
def configured(node: RealNode, *options: str) -> Iterator[None]:
    """Restart CRI-O with the drop-in that podsettle prints, at its path."""
    runtime = cast(Crio, node.runtime)
    drop_in = selinux_drop_in(runtime.default_handler, *options)
    runtime.add_drop_in(Path(DROP_IN).name, drop_in)
    runtime.stop()
    runtime.start()
    assert Path(DROP_IN).exists(), "CRI-O reads another directory than the pages say"
    try:
        yield
    finally:
        runtime.remove_drop_in(Path(DROP_IN).name)


def handlers(node: RealNode) -> set[str]:
    """Return the handlers that the node's status lists."""
    return {each.get("name", "") for each in node.status().get("runtimeHandlers") or ()}


def pod_of(node: RealNode, namespace: str, name: str, kind: PodKind, policies: Path) -> Json:
    """Return a pod with a volume. If it is annotated, then as podsettle changes it."""
    container = {
        "name": "main",
        "image": node.images.busybox,
        "command": ["sleep", "1000"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }
    if kind.is_annotated:
        remedy = {"pods": "All"} | ({"runtimeClassName": CLASS} if kind.has_class else {})
        policy = policy_document("large-volumes", remedies={"skipSELinuxRelabel": remedy})
        policies.write_text(yaml.safe_dump(policy))
        pod = yaml.safe_load(previewed(node, pod, policies, output="yaml"))
        assert pod["metadata"]["annotations"][OLD_SPELLING] == "true"
    elif kind.has_class:
        pod["spec"]["runtimeClassName"] = CLASS
    assert pod["spec"].get("runtimeClassName") == (CLASS if kind.has_class else None)
    return pod


def sandbox_annotation(node: RealNode, pod: Json) -> str | None:
    """Run a pod, and return the annotation that CRI-O leaves on its sandbox."""
    metadata = node.create_pod(pod)["metadata"]
    running = node.await_pod(
        metadata["namespace"],
        metadata["name"],
        lambda found: found["status"].get("phase") == "Running",
    )
    return cast(Crio, node.runtime).sandbox_annotations(running).get(OLD_SPELLING)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_sandbox_has_the_annotation_only_for_the_pods_of_the_mode(
    node: RealNode, namespace: str, tmp_path: Path, mode: Mode
) -> None:
    with configured(node, *mode.options):
        has_handler = "workload" not in mode.options
        await_that(
            lambda: (HANDLER in handlers(node)) == has_handler,
            "the node's status shows the handler",
            TIMEOUT_SECONDS,
        )
        policies = tmp_path / "policies.yaml"
        kept = pod_of(node, namespace, "kept", mode.kept, policies)
        dropped = pod_of(node, namespace, "dropped", mode.dropped, policies)
        assert sandbox_annotation(node, kept) == "true"
        assert sandbox_annotation(node, dropped) is None


def test_sandbox_has_no_annotation_without_the_configuration(
    node: RealNode, namespace: str, tmp_path: Path
) -> None:
    node.runtime.stop()
    node.runtime.start()
    pod = pod_of(node, namespace, "dropped", PodKind(True, False), tmp_path / "policies.yaml")
    assert sandbox_annotation(node, pod) is None
