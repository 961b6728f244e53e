"""A release without its webhook configuration, and one without a replica."""

from __future__ import annotations

import signal
from copy import deepcopy

import pytest

from tests.support.chart_release import (
    CHOSEN,
    labelled,
    mirror_pod,
    opted_in,
    windows_pod,
)
from tests.support.e2e_pods import is_called, simple_pod
from tests.support.helm import NAMESPACE
from tests.support.helm_release import (
    BY_SELECTOR,
    FAIL,
    POLICIES,
    RELEASE,
    REQUIRED,
    Installation,
    policy,
)
from tests.support.kube.cluster import Json
from tests.support.paths import CHART
from tests.support.waiting import await_that

pytestmark = pytest.mark.slow


def test_pods_created_while_podsettle_is_down_can_be_found_afterwards(
    changed_release: Installation,
) -> None:
    release, cluster = changed_release, changed_release.cluster
    release.start_ready()
    namespace = opted_in(cluster, "outage-")
    assert cluster.create_pod(simple_pod("before", namespace)).status == 201

    release.stop_all(signal.SIGKILL)
    assert cluster.create_pod(simple_pod("during", namespace)).status == 201
    (missed,) = _missed(release, namespace)
    assert missed.startswith(
        f"{namespace} Pod/during: missed: the pod is younger than policy opt-in"
    )
    settled = release.shell(release.documented("operations.md", "Find the settled pods"))
    assert f"{namespace} before opt-in/postInitSleep" in " ".join(settled.split())
    assert "during" not in settled

    release.start_ready()
    await_that(lambda: is_called(cluster, namespace), "podsettle is called again")
    assert cluster.create_pod(simple_pod("after", namespace)).status == 201
    assert _missed(release, namespace) == [missed]


def _missed(release: Installation, namespace: str) -> list[str]:
    """Return the lines of the documented command about one namespace."""
    command = release.documented("operations.md", "Find the pods that were missed")
    return [line for line in release.shell(command).splitlines() if line.startswith(namespace)]


def test_failure_policy_fail_does_not_block_podsettle_itself(changed_release: Installation) -> None:
    """Without a replica, pods are refused, except those of podsettle and of the cluster."""
    release, cluster = changed_release, changed_release.cluster
    namespace = opted_in(cluster, "fail-")
    release.helm("upgrade", RELEASE, CHART, REQUIRED, *FAIL)
    cluster.create(POLICIES, policy("wide", namespaceSelector={}))
    await_that(
        lambda: release.webhooks().get(BY_SELECTOR, {}).get("failurePolicy") == "Fail",
        "the second webhook has it, too",
    )
    other = cluster.namespace("fail-other-")
    await_that(lambda: is_called(cluster, other), "what a policy selects is covered, too")
    admitted = cluster.create_pod(simple_pod("settled", other), dry_run=True).body
    settled = {"metadata": {"name": "settled", "namespace": other}, "spec": admitted["spec"]}
    settled["metadata"]["annotations"] = admitted["metadata"]["annotations"]
    assert "podsettle.dev/settled" in settled["metadata"]["annotations"]
    release.stop_all(signal.SIGKILL)

    def answer(pod: Json) -> tuple[int, str]:
        status, body, _ = cluster.create_pod(pod, dry_run=True)
        return status, body.get("message", "")

    await_that(lambda: answer(simple_pod("pod", namespace))[0] == 500, "pods are refused")
    message = answer(simple_pod("pod", namespace))[1]
    assert 'failed calling webhook "opt-in.podsettle.dev"' in message
    await_that(
        lambda: 'failed calling webhook "cluster' in answer(simple_pod("pod", other))[1],
        "those that a policy selects, too",
    )

    # The name excludes the namespace, whatever its labels.
    cluster.namespace("kube-public")
    for excluded in (NAMESPACE, "kube-system", "kube-public"):
        with labelled(cluster, excluded):
            assert answer(simple_pod("pod", excluded)) == (201, ""), excluded

    for switched_off in (CHOSEN, {}):
        off = cluster.namespace("off-", labels=switched_off | {"podsettle.dev/enabled": "false"})
        assert answer(simple_pod("pod", off)) == (201, "")

    # By the match conditions: asked about none of these.
    for left_alone in (mirror_pod(other), windows_pod(other), settled):
        assert answer(left_alone) == (201, ""), left_alone
    # Where there are none, about all.
    for asked_about in (mirror_pod(namespace), windows_pod(namespace)):
        assert answer(asked_about)[0] == 500, asked_about
    later = {"name": "added-later", "image": "i", "command": ["/other"]}
    for where, what in (
        ("initContainers", later),
        ("containers", later),
        ("volumes", {"name": "added-later", "emptyDir": {}}),
    ):
        changed = deepcopy(settled)
        changed["spec"][where].append(what)
        assert answer(changed)[0] == 500, f"what another webhook adds to {where} counts"
    changed = deepcopy(settled)
    changed["metadata"]["labels"] = {"added": "later"}
    assert answer(changed)[0] == 500, "a policy may select the label"
    changed = deepcopy(settled)
    changed["metadata"]["annotations"] = {"podsettle.dev/settled": "true"}
    assert answer(changed)[0] == 500, "the value is no size"
    linux = simple_pod("linux", other)
    linux["spec"]["os"] = {"name": "linux"}
    linux["metadata"]["annotations"] = {"unrelated": "x"}
    assert answer(linux)[0] == 500

    # The outage ends without manual help.
    release.start_ready()
    await_that(lambda: answer(simple_pod("pod", namespace))[0] == 201, "pods are created again")
