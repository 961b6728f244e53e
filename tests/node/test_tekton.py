"""Tests of podsettle with Tekton's own controller, on a node with an affected CRI-O.

The provocation of lab/ makes CRI-O lose exit codes. A RuntimeClass chooses it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.provocation import (
    Provocation,
    build,
    class_name,
    crio_drop_in,
    runtime_class,
)
from tests.support.factories import Json, policy_document
from tests.support.node.crio import Crio
from tests.support.node.node import TIMEOUT_SECONDS, RealNode
from tests.support.node.node_pool import NodePool
from tests.support.node.optional_builds import crio_or_skip, tekton_or_skip
from tests.support.node.registry_server import SECOND_ADDRESS, serve
from tests.support.node.release import await_deployment, condition, install_podsettle
from tests.support.node.tekton import (
    DEPLOYMENTS,
    NAMESPACE,
    apply_tekton,
    outcome,
    task_run,
)
from tests.support.policy_objects import POLICIES
from tests.support.waiting import await_that
from tools.crio import AFFECTED
from webhook.core.constants import ANNOTATION_APPLIED

POLICY = "tekton-on-crio"
SETTLED, NOT_SETTLED = "settled", "not-settled"
PROVOKED = class_name(Provocation.LATE_EXIT)
# Tekton's own init containers run longer than CRI-O's query after the start, because `prepare`
# copies 44 MiB, so the query is delayed: by half of the default minimum lifetime.
START_DELAY_MS = 250
AT_ONCE = 8


@pytest.fixture(scope="module")
def node(nodes: NodePool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    crio, tekton = crio_or_skip(AFFECTED), tekton_or_skip()
    runc, conmon = shutil.which("runc"), shutil.which("conmon")
    assert runc, "not installed: apt install runc"
    assert conmon, "not installed: apt install conmon"
    runtime = Crio(crio)
    provoked = build(
        Path(runc), tmp_path_factory.mktemp("provocations"), start_delay_ms=START_DELAY_MS
    )
    runtime.add_drop_in("90-race.conf", crio_drop_in(provoked, Path(conmon)))
    with ExitStack() as stack:
        log = tmp_path_factory.mktemp("registry") / "registry.log"
        stack.enter_context(serve(tekton.registry, log, SECOND_ADDRESS))
        own = stack.enter_context(nodes.own(runtime))
        classes = "/apis/node.k8s.io/v1/runtimeclasses"
        own.cluster.create(classes, runtime_class(Provocation.LATE_EXIT))
        install_podsettle(own)
        selector = {"matchLabels": {"kubernetes.io/metadata.name": SETTLED}}
        own.cluster.create(POLICIES, policy_document(POLICY, namespaceSelector=selector))
        await_that(
            lambda: condition(own, POLICY, "StillNeeded") == "True",
            "the policy is needed",
            TIMEOUT_SECONDS,
        )
        apply_tekton(own.cluster, tekton, own.images.busybox)
        for name in DEPLOYMENTS:
            await_deployment(own, NAMESPACE, name)
        for name in (SETTLED, NOT_SETTLED):
            own.namespace(name)
        yield own


def ended_runs(
    node: RealNode, namespace: str, count: int, provocation: str | None = None
) -> list[Json]:
    """Create TaskRuns at once, and return them when all have ended."""
    path = f"/apis/tekton.dev/v1/namespaces/{namespace}/taskruns"
    run = task_run(namespace, node.images.busybox, provocation)
    names = {node.cluster.create(path, run)["metadata"]["name"] for _ in range(count)}
    found: list[Json] = []

    def have_ended() -> bool:
        listed = node.cluster.request("GET", path).body["items"]
        found[:] = [each for each in listed if each["metadata"]["name"] in names]
        return all(outcome(each) for each in found)

    await_that(have_ended, "the TaskRuns have ended", TIMEOUT_SECONDS)
    assert len(found) == count
    return found


def failures(runs: list[Json]) -> list[str]:
    """Return the messages of the TaskRuns that failed."""
    conditions = [outcome(run) for run in runs]
    return [each["message"] for each in conditions if each and each["status"] == "False"]


def is_settled(node: RealNode, run: Json) -> bool:
    """Whether podsettle has applied the remedy to the pod of a TaskRun."""
    pod = node.pod(run["metadata"]["namespace"], run["status"]["podName"])
    applied: str = pod["metadata"]["annotations"].get(ANNOTATION_APPLIED, "")
    return applied == f"{POLICY}/postInitSleep"


def test_task_runs_succeed_with_and_without_the_remedy(node: RealNode) -> None:
    for namespace in (SETTLED, NOT_SETTLED):
        runs = ended_runs(node, namespace, 2)
        assert failures(runs) == []
        assert {is_settled(node, run) for run in runs} == {namespace == SETTLED}


def test_task_runs_fail_with_a_lost_exit_code_only_without_the_remedy(node: RealNode) -> None:
    failed = failures(ended_runs(node, NOT_SETTLED, AT_ONCE, PROVOKED))
    assert failed, "the provocation has no effect"
    assert all("exited with code 255" in message for message in failed), failed

    runs = ended_runs(node, SETTLED, AT_ONCE, PROVOKED)
    assert failures(runs) == []
    assert all(is_settled(node, run) for run in runs)
