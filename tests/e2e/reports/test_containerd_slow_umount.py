"""A slow umount of a finished init container's root filesystem leaves it Running (containerd#8698).

The pod is shaped as in the public report "containerd init container stuck in Running": containers
that wait for an init container `init-proxy`.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import tomllib

import pytest
import yaml

from tests.support.doc_scenario import DocScenario, of_kind
from tests.support.factories import Json, container, node
from tests.support.factories import pod as pod_of
from tests.support.kube.cluster import KubeCluster

NODES = [
    of_kind("Node", node("slow", "containerd://1.7.29", "v1.33.5")),
    of_kind("Node", node("volatile", "containerd://1.7.29", "v1.33.5", {"rootfs": "volatile"})),
]
NAMESPACE = of_kind("Namespace", {"metadata": {"name": "ci", "labels": {"rootfs": "volatile"}}})
PROXIED = pod_of(
    container("init-proxy", "/bin/init-proxy"),
    containers=[container("business", "/bin/serve"), container("agent", "/bin/agent")],
)


@pytest.fixture
def page_name() -> str:
    return "slow-umount"


@pytest.fixture
def printed(scenario: DocScenario) -> Json:
    """The RuntimeClass that the page's command prints."""
    typed = next(c for c in scenario.page.commands if c.arguments[-1:] == ("runtimeclass",))
    found: Json = yaml.safe_load(scenario.run(*typed.arguments))
    return found


def test_page_quotes_the_report(scenario: DocScenario) -> None:
    symptom = scenario.page.sections["Symptom"]
    assert 'msg="failed to delete task" error="context deadline exceeded"' in symptom
    assert "failed to stop container" in symptom
    assert "failed to load task for container: context deadline exceeded" in symptom


def test_node_config_of_the_page_makes_overlay_mounts_volatile(scenario: DocScenario) -> None:
    drop_in = tomllib.loads(scenario.run("node-config", "containerd"))
    overlayfs = drop_in["plugins"]["io.containerd.snapshotter.v1.overlayfs"]
    assert overlayfs == {"mount_options": ["volatile"]}


def _status(began: str, ended: str | None = None, restarts: int = 0) -> Json:
    state = {"startedAt": began} if ended is None else {"startedAt": began, "finishedAt": ended}
    return {
        "state": {"running" if ended is None else "terminated": state},
        "restartCount": restarts,
    }


@pytest.mark.needs("jq")
def test_gap_between_containers_is_found_in_the_pod_status(scenario: DocScenario) -> None:
    """The times come from the report, whose container ended at 14:25:02."""
    (line,) = (
        line
        for block in scenario.page.blocks
        for line in block.text.split("\n")
        if "| jq -r" in line
    )
    program = shlex.split(line.partition("| jq -r ")[2])
    init = [_status("2023-12-28T14:25:01Z", "2023-12-28T14:25:02Z")]
    late, soon = "2023-12-28T14:40:23Z", "2023-12-28T14:25:05Z"
    statuses = {
        "stuck": {"initContainerStatuses": init, "containerStatuses": [_status(late)]},
        "stuck-and-ended": {
            "initContainerStatuses": init,
            "containerStatuses": [_status(late, "2023-12-28T14:41:00Z")],
        },
        "soon": {"initContainerStatuses": init, "containerStatuses": [_status(soon)]},
        "restarted": {
            "initContainerStatuses": init,
            "containerStatuses": [_status(late, restarts=1)],
        },
        "without-init": {"containerStatuses": [_status(late)]},
        "waiting": {
            "initContainerStatuses": [{"state": {"running": {"startedAt": soon}}}],
            "containerStatuses": [{"state": {"waiting": {}}, "restartCount": 0}],
        },
        "new": {},
    }
    pods = [
        {"metadata": {"namespace": "ci", "name": name}, "status": status}
        for name, status in statuses.items()
    ]
    done = subprocess.run(
        ["jq", "-r", *program],
        input=json.dumps({"items": pods}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["921 s ci/stuck", "921 s ci/stuck-and-ended"]


def test_runtime_class_schedules_the_pod_onto_configured_nodes(
    scenario: DocScenario, printed: Json
) -> None:
    scenario.apply(NAMESPACE, printed, *NODES)
    found = scenario.admit(PROXIED)
    assert found.reasons == {"runtimeClass": "Applied"}
    assert found.warnings == []
    assert found.after["spec"] == {**PROXIED["spec"], "runtimeClassName": "overlay-volatile"}
    chosen = printed["scheduling"]["nodeSelector"].items()
    fit = [
        n["metadata"]["name"] for n in NODES if chosen <= (n["metadata"]["labels"] or {}).items()
    ]
    assert fit == ["volatile"]
    scenario.preview(PROXIED)


def test_api_server_adds_the_node_selector_of_the_class(
    scenario: DocScenario, printed: Json, cluster: KubeCluster, namespace: str
) -> None:
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    cluster.create(classes, printed)
    try:
        scenario.apply(NAMESPACE, printed, *NODES)
        settled = scenario.admit(PROXIED).after
        settled["metadata"] = {"name": "proxied", "namespace": namespace}
        made = cluster.create_pod(settled)
        assert made.status == 201, made.body
        assert made.body["spec"]["nodeSelector"] == {"rootfs": "volatile"}
    finally:
        cluster.request("DELETE", f"{classes}/{printed['metadata']['name']}")
