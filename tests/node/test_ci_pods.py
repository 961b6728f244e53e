"""Tests of Tekton's, Woodpecker's and Jobs' pods, for each delivery of postInitSleep, on a real
node. Each has to end in the same way as without podsettle.
"""

from __future__ import annotations

import json

import pytest

from tests.support.kube.cluster import Json, KubeCluster
from tests.support.node.ci_pods import (
    STEPS,
    TOKEN,
    tekton_pod,
    woodpecker_pod,
    woodpecker_secret,
)
from tests.support.node.deliveries import DELIVERIES, PLAIN, WITH_HELPER, Settled, namespace_of
from tests.support.node.delivery_cases import in_shell
from tests.support.node.pods import commands, exit_codes, pod_path, states, wrapper_of
from tests.support.waiting import await_that


@pytest.mark.parametrize("delivery", [PLAIN, *WITH_HELPER])
def test_tekton_steps_give_their_results_and_exit_codes(delivery: str, settled: Settled) -> None:
    cluster, namespace = settled.cluster, namespace_of(delivery)
    pod = tekton_pod(settled.images, namespace)
    name = pod["metadata"]["name"]
    made = cluster.create(pod_path(namespace), pod)
    wrapped = {each for each, command in commands(made).items() if wrapper_of(command)}
    assert wrapped == ({"prepare", "place-scripts", *STEPS} if delivery else set())
    settled.await_pod(
        delivery, name, lambda found: "running" in states(found).get("sidecar-server", {})
    )
    # As Tekton's controller does when the sidecars are ready.
    annotations = {"metadata": {"annotations": {"tekton.dev/ready": "READY"}}}
    cluster.request("PATCH", pod_path(namespace, name), annotations)
    ended = settled.await_pod(
        delivery,
        name,
        lambda found: all("terminated" in states(found).get(step, {}) for step in STEPS),
    )
    first, second = (states(ended)[step]["terminated"] for step in STEPS)
    assert (first["exitCode"], second["exitCode"]) == (0, 0)  # the second has `-on_error continue`
    assert _results(first)["commit"] == "abc"
    assert _results(second)["ExitCode"] == "7"
    assert settled.log(delivery, name, STEPS[0]).startswith("the first step\n")
    assert settled.log(delivery, name, STEPS[1]).startswith("the result is abc\n")
    assert "running" in states(ended)["sidecar-server"]
    settled.delete(delivery, name)


def _results(terminated: Json) -> dict[str, str]:
    """Return what Tekton's controller reads from a termination message."""
    return {each["key"]: each["value"] for each in json.loads(terminated["message"])}


@pytest.mark.parametrize("delivery", [PLAIN, *DELIVERIES])
def test_woodpecker_step_runs_its_script_and_gives_its_exit_code(
    delivery: str, settled: Settled
) -> None:
    cluster, namespace = settled.cluster, namespace_of(delivery)
    cluster.create(f"/api/v1/namespaces/{namespace}/secrets", woodpecker_secret())
    pod = woodpecker_pod(settled.images, namespace)
    name = pod["metadata"]["name"]
    made = cluster.create(pod_path(namespace), pod)
    assert bool(wrapper_of(commands(made)[name])) == bool(delivery)
    ended = settled.await_end(delivery, name)
    assert ended["status"]["phase"] == "Failed"
    assert exit_codes(ended)[name] == 9
    directory, *message, token, groups, end = settled.log(delivery, name, name).split("\n")
    assert directory == "/woodpecker"
    assert message == ['fix: it\'s "quoted" & $(not a ref)', "second line"]
    assert token == TOKEN
    assert "1000" in groups.split()
    assert end == ""


@pytest.mark.parametrize("delivery", [PLAIN, *DELIVERIES])
def test_job_counts_success_and_fails_at_the_exit_code_of_its_policy(
    delivery: str, settled: Settled
) -> None:
    """The rule on exit code 42 ends the Job at once. Any other code would be tried again."""
    namespace = namespace_of(delivery)
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    on_exit_codes = {"containerName": "main", "operator": "In", "values": [42]}
    for name, script in (("succeeds", "true"), ("fails", "exit 42")):
        template = {
            "restartPolicy": "Never",
            "containers": [in_shell("main", script, settled.images.busybox)],
        }
        spec: Json = {
            "backoffLimit": 6,
            "template": {"spec": template},
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": on_exit_codes}]},
        }
        settled.cluster.create(jobs, {"metadata": {"name": name}, "spec": spec})
    for name, condition in (("succeeds", "Complete"), ("fails", "Failed")):
        job = _await_condition(settled.cluster, f"{jobs}/{name}", condition)
        if condition == "Failed":
            (failed,) = [each for each in job["status"]["conditions"] if each["type"] == condition]
            assert failed["reason"] == "PodFailurePolicy"
        pods = settled.cluster.request(
            "GET", f"{pod_path(namespace)}?labelSelector=job-name={name}"
        ).body["items"]
        assert len(pods) == 1
        assert bool(wrapper_of(commands(pods[0])["main"])) == bool(delivery)


def _await_condition(cluster: KubeCluster, path: str, condition: str) -> Json:
    latest: list[Json] = []

    def holds() -> bool:
        latest[:] = [cluster.request("GET", path).body]
        conditions = latest[0].get("status", {}).get("conditions", ())
        return any(each["type"] == condition and each["status"] == "True" for each in conditions)

    await_that(holds, f"{path} is {condition}", 120)
    return latest[0]
