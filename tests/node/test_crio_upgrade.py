"""Tests of `NodesNeedIt` and `StillNeeded` through upgrade and downgrade of a node's CRI-O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from tests.support.factories import Json, policy_document
from tests.support.helm import NAMESPACE
from tests.support.node.crio import Crio
from tests.support.node.node import TIMEOUT_SECONDS, RealNode
from tests.support.node.node_pool import NodePool
from tests.support.node.optional_builds import crio_or_skip
from tests.support.node.release import condition, install_podsettle, previewed
from tests.support.policy_objects import POLICIES
from tests.support.waiting import await_that
from tools.crio import AFFECTED, FIXED, CrioBuild
from webhook.core.constants import ANNOTATION_APPLIED

POLICY = "quick-init"
APPLIED = f"{POLICY}/postInitSleep"


@pytest.fixture(scope="module")
def node(nodes: NodePool) -> Iterator[RealNode]:
    build = crio_or_skip(AFFECTED)
    crio_or_skip(FIXED)
    with nodes.own(Crio(build)) as own:
        install_podsettle(own)
        own.cluster.create(POLICIES, policy_document(POLICY))
        yield own


def replace_crio(node: RealNode, build: CrioBuild) -> None:
    """Stop CRI-O, start another release, and wait until the node's status shows it."""
    runtime = cast(Crio, node.runtime)
    runtime.stop()
    runtime.build = build
    runtime.start()
    await_that(
        lambda: node.node_info()["containerRuntimeVersion"] == f"cri-o://{build.version}",
        "the node's status shows the release",
        TIMEOUT_SECONDS,
    )


def pod(node: RealNode, namespace: str, name: str) -> Json:
    """Return a pod with an init container that ends at once."""
    container = {"image": node.images.busybox, "command": ["true"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "restartPolicy": "Never",
            "initContainers": [{"name": "prepare", **container}],
            "containers": [{"name": "main", **container}],
        },
    }


def applied(created: Json) -> str | None:
    """Return what podsettle has applied to a pod."""
    annotations: dict[str, str] = created["metadata"].get("annotations", {})
    return annotations.get(ANNOTATION_APPLIED)


def is_wrapped(node: RealNode, namespace: str) -> bool:
    """Whether a new pod would get the remedy."""
    created = node.cluster.create_pod(pod(node, namespace, "probe"), dry_run=True).body
    return applied(created) == APPLIED


def replicas(node: RealNode) -> dict[str, int]:
    """Return how often the containers of podsettle's pods were restarted."""
    listed = node.cluster.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods").body["items"]
    return {
        each["metadata"]["uid"]: each["status"]["containerStatuses"][0]["restartCount"]
        for each in listed
    }


def assert_needed(node: RealNode, namespace: str, name: str) -> None:
    """The policy is needed, and a pod with the remedy succeeds."""
    await_that(
        lambda: condition(node, POLICY, "StillNeeded") == "True",
        "the policy is needed",
        TIMEOUT_SECONDS,
    )
    await_that(lambda: is_wrapped(node, namespace), "pods get the remedy", TIMEOUT_SECONDS)
    finished = node.run_pod(pod(node, namespace, name))
    assert applied(finished) == APPLIED
    assert finished["status"]["phase"] == "Succeeded"


def test_remedy_steps_aside_after_an_upgrade_of_the_node_and_returns_after_a_downgrade(
    node: RealNode, namespace: str
) -> None:
    before = replicas(node)
    assert_needed(node, namespace, "before")

    replace_crio(node, crio_or_skip(FIXED))
    await_that(
        lambda: condition(node, POLICY, "StillNeeded") == "False",
        "the policy is no longer needed",
        TIMEOUT_SECONDS,
    )
    await_that(lambda: not is_wrapped(node, namespace), "pods stay as they are", TIMEOUT_SECONDS)
    finished = node.run_pod(pod(node, namespace, "upgraded"))
    assert applied(finished) is None
    assert finished["spec"]["initContainers"][0]["command"] == ["true"]
    assert finished["status"]["phase"] == "Succeeded"
    assert "NotNeeded" in previewed(node, pod(node, namespace, "asked"))

    replace_crio(node, crio_or_skip(AFFECTED))
    assert_needed(node, namespace, "downgraded")
    # The containers of podsettle go on while the runtime is replaced.
    assert replicas(node) == before
