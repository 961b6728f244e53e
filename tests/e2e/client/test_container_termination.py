"""Tests of `podsettle wait` on a real API server, with the pod statuses of the reports."""

from __future__ import annotations

import json
import os
import re
import subprocess
from itertools import product
from pathlib import Path

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.kubeconfigs import write_kubeconfig
from tests.support.kubelet_status import RUNNING, Pod, Run, running, terminated, waiting
from tests.support.process import PODSETTLE, free_port, podsettle
from tests.support.service_accounts import kubeconfig_of_account
from tools.build import programs

pytestmark = pytest.mark.slow

WAIT = ("wait", "step-1", "--for=terminated")
QUICK = ("--backoff-first", "10ms", "--backoff-total", "200ms")


def test_wait_returns_the_exit_code_of_a_failed_container(
    cluster: KubeCluster, namespace: str, run: Run
) -> None:
    pod = Pod(cluster, namespace)
    with run(*WAIT) as command:
        pod.say("Failed", {"step": RUNNING})
        command.await_word("has no terminated state")
        pod.say("Failed", {"step": terminated(3)})
        assert command.end() == 3
        assert command.stdout == b"step-1/step: exit code 3 (Error)\n"


KINDS = ("step", "clone", "proxy", "debug")
"""A regular container, an init container, a native sidecar, an ephemeral container."""


def pod_of_every_kind(cluster: KubeCluster, namespace: str) -> Pod:
    return Pod(cluster, namespace, init=("clone",), sidecars=("proxy",), ephemeral=("debug",))


@pytest.mark.parametrize(
    ("container", "phase"), [*product(KINDS, ["Succeeded", "Failed"]), ("step", "Running")]
)
def test_exit_code_of_a_deleted_pod_is_0_only_if_its_phase_implies_success(
    cluster: KubeCluster, namespace: str, run: Run, container: str, phase: str
) -> None:
    """Phase Succeeded implies exit code 0 of all regular and init containers, but of no others."""
    pod = pod_of_every_kind(cluster, namespace)
    pod.say("Pending", {container: waiting("ErrImagePull")})
    with run(*WAIT, "-c", container) as command:
        command.await_word("ErrImagePull; still waiting")
        pod.say(phase, dict.fromkeys(KINDS, RUNNING))
        if phase != "Running":
            command.await_word("has no terminated state")
        pod.delete()
        if phase == "Succeeded" and container in ("step", "clone"):
            assert command.end() == 0
            assert command.stdout == f"step-1/{container}: exit code 0 (PodDeleted)\n".encode()
        else:
            assert command.end() == 2
            assert command.stdout == b""
            expected = f"deleted before its container {container} was seen to end; its phase was"
            assert f"{expected} {phase}" in command.stderr


@pytest.mark.parametrize(("container", "code"), [*product(KINDS, [5]), ("proxy", 0), ("debug", 0)])
def test_exit_code_in_the_status_has_precedence_over_the_phase(
    cluster: KubeCluster, namespace: str, run: Run, container: str, code: int
) -> None:
    pod = pod_of_every_kind(cluster, namespace)
    pod.say("Succeeded", {container: terminated(code)})
    with run(*WAIT, "-c", container) as command:
        assert command.end() == code


def test_sidecar_of_a_deleted_pod_has_its_last_reported_exit_code(
    cluster: KubeCluster, namespace: str, run: Run
) -> None:
    """Until the deletion the sidecar may be restarted, so `wait` continues."""
    pod = pod_of_every_kind(cluster, namespace)
    pod.say("Running", {"step": waiting("ErrImagePull"), "proxy": waiting("ErrImagePull")})
    with run(*WAIT, "-c", "proxy") as command:
        command.await_word("ErrImagePull; still waiting")
        pod.say("Running", {"proxy": terminated(5)})
        pod.delete()
        assert command.end() == 5


def test_pod_with_the_name_of_a_deleted_pod_does_not_change_the_exit_code(
    cluster: KubeCluster, namespace: str, run: Run
) -> None:
    pod = Pod(cluster, namespace)
    with run(*WAIT) as command:
        pod.say("Succeeded", {"step": RUNNING})
        command.await_word("has no terminated state")
        pod.delete()
        Pod(cluster, namespace).say("Failed", {"step": terminated(4)})
        assert command.end() == 0


def test_missing_pod_is_an_error(cluster: KubeCluster, namespace: str) -> None:
    env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    done = podsettle(*WAIT, "-n", namespace, env=env)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"podsettle: pod {namespace}/step-1 does not exist\n"


def test_pod_with_several_containers_needs_a_container_name(
    cluster: KubeCluster, namespace: str, run: Run
) -> None:
    # The container of a mesh precedes that of the step in alphabetical order.
    pod = Pod(cluster, namespace, containers=("wp-step", "istio-proxy"), init=("clone",))
    states = {"wp-step": terminated(7), "istio-proxy": RUNNING, "clone": terminated(1)}
    pod.say("Running", states)
    with run(*WAIT) as command:
        assert command.end() == 2
        assert "several containers, name one: wp-step, istio-proxy" in command.stderr
    for name, code in (("wp-step", 7), ("clone", 1)):
        with run(*WAIT, "-c", name) as command:
            assert command.end() == code
    with run(*WAIT, "-c", "none") as command:
        assert command.end() == 2
        assert "no container 'none', only wp-step, istio-proxy, clone" in command.stderr


def test_wait_continues_in_phase_unknown(cluster: KubeCluster, namespace: str, run: Run) -> None:
    pod = Pod(cluster, namespace)
    with run(*WAIT) as command:
        pod.say("Unknown", {"step": RUNNING})
        command.await_word("phase Unknown")
        pod.say("Failed", {"step": terminated(137, "ContainerStatusUnknown")})
        assert command.end() == 137
        assert command.stdout == b"step-1/step: exit code 137 (ContainerStatusUnknown)\n"


def test_missing_terminated_state_is_an_error_that_names_the_option_of_the_back_off(
    cluster: KubeCluster, namespace: str, run: Run
) -> None:
    Pod(cluster, namespace).say("Failed", {})
    with run(*WAIT, *QUICK) as command:
        assert command.end() == 2
        assert command.stdout == b""
        last = command.stderr.splitlines()[-1]
        assert last.startswith(
            "podsettle: gave up after 200ms (--backoff-total): the exit code of step-1 is not known"
        )
        assert last.endswith("is Failed, and its container step has no terminated state; "
                             "its state is unknown")  # fmt: skip


@pytest.mark.parametrize("timeout", ["0ms", "100ms"])
def test_wait_gives_up_after_its_timeout(
    cluster: KubeCluster, namespace: str, run: Run, timeout: str
) -> None:
    pod = Pod(cluster, namespace)
    pod.say("Running", {"step": RUNNING})
    with run(*WAIT, "--timeout", timeout) as command:
        assert command.end() == 2
        assert command.stdout == b""
        assert f"gave up after {timeout} (--timeout)" in command.stderr
        assert "its state is running" in command.stderr
    pod.say("Succeeded", {"step": terminated(0)})
    with run(*WAIT, "--timeout", timeout) as command:
        assert command.end() == 0


def test_pod_that_fails_before_a_restart_has_the_exit_code_of_the_last_run(
    cluster: KubeCluster, namespace: str, run: Run
) -> None:
    pod = Pod(cluster, namespace)
    pod.say("Failed", {"step": waiting("CrashLoopBackOff")}, last=terminated(9))
    with run(*WAIT, *QUICK) as command:
        assert command.end() == 9


@pytest.mark.parametrize("code", [256, -1073741510])
def test_exit_code_outside_0_to_255_exits_with_255(
    cluster: KubeCluster, namespace: str, run: Run, code: int
) -> None:
    Pod(cluster, namespace).say("Failed", {"step": terminated(code)})
    with run(*WAIT, "-o", "json") as command:
        assert command.end() == 255
        assert json.loads(command.stdout) == {
            "pod": "step-1",
            "container": "step",
            "exitCode": code,
            "reason": "Error",
            "finishedAt": "2026-05-30T10:01:00Z",
        }


def test_pauses_grow_by_the_factor_up_to_the_longest(
    cluster: KubeCluster, namespace: str, run: Run
) -> None:
    Pod(cluster, namespace).say("Succeeded", {"step": RUNNING})
    flags = ("--backoff-factor", "2", "--backoff-jitter", "0", "--backoff-first", "100ms")
    with run(*WAIT, *flags, "--backoff-max", "400ms", "--backoff-total", "3s") as command:
        assert command.end() == 2
        said = re.findall(r"trying again in (\S+) s", command.stderr)
        assert said == ["0.1", "0.2", *["0.4"] * 9][: len(said)]
        assert len(said) > 3


@pytest.mark.slow
def test_wait_survives_a_restart_of_the_api_server(tmp_path: Path) -> None:
    with KubeCluster.start() as own:
        pod = Pod(own, "default")
        pod.say("Pending", {"step": waiting("ErrImagePull")})
        with running(own.kubeconfig, tmp_path, *WAIT, "--backoff-first", "50ms") as command:
            command.await_word("ErrImagePull")
            own.kill_apiserver()
            command.await_word("trying again")
            own.start_apiserver()
            pod.say("Failed", {"step": terminated(5)})
            assert command.end() == 5


def test_forbidden_request_is_reported_without_a_retry(
    cluster: KubeCluster, namespace: str, tmp_path: Path
) -> None:
    Pod(cluster, namespace)
    kubeconfig = kubeconfig_of_account(cluster, f"{namespace}:default", tmp_path, namespace)
    with running(kubeconfig, tmp_path, *WAIT) as command:
        assert command.end() == 2
        assert "podsettle: the API server answered 403: " in command.stderr
        # Only the kubeconfig's context names the namespace.
        assert f'in the namespace "{namespace}"' in command.stderr
        assert "trying again" not in command.stderr


def test_kubectl_plugin_waits_and_returns_the_exit_code(
    cluster: KubeCluster, namespace: str
) -> None:
    Pod(cluster, namespace).say("Failed", {"step": terminated(6)})
    kubectl = programs().kubectl
    assert kubectl is not None
    path = f"{Path(PODSETTLE).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [kubectl, "settle", "wait", "pod/step-1", "-n", namespace],
        env={**os.environ, "PATH": path, "KUBECONFIG": str(cluster.kubeconfig)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 6, done.stderr
    assert done.stdout == b"step-1/step: exit code 6 (Error)\n"


def test_unreachable_api_server_is_reported_with_its_address(tmp_path: Path) -> None:
    port = free_port()
    path = write_kubeconfig(tmp_path, f"https://127.0.0.1:{port}")
    done = podsettle(*WAIT, "--kubeconfig", path, "--backoff-total", "0s")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        "gave up after 0ms (--backoff-total): the exit code of step-1 is not known" in done.stderr
    )
    assert f": 127.0.0.1:{port}: connection refused" in done.stderr
    assert "ssl" not in done.stderr


def test_missing_or_invalid_kubeconfig_is_reported_with_its_path(tmp_path: Path) -> None:
    env = {name: text for name, text in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
    told = "does not exist; set KUBECONFIG, or run in a pod\n"
    done = podsettle(*WAIT, env={**env, "KUBECONFIG": "/none/such"})
    assert done.returncode == 2
    assert done.stderr == f"podsettle: no cluster found: /none/such (KUBECONFIG) {told}"
    done = podsettle(*WAIT, "--kubeconfig", "/nope", env=env)
    assert done.returncode == 2
    assert done.stderr == "podsettle: /nope (--kubeconfig) does not exist\n"
    env.pop("KUBECONFIG", None)
    done = podsettle(*WAIT, env={**env, "HOME": str(tmp_path)})
    assert done.stderr == f"podsettle: no cluster found: {tmp_path}/.kube/config {told}"
    (tmp_path / "broken").write_text("a: [\nb")
    done = podsettle(*WAIT, "--kubeconfig", tmp_path / "broken")
    assert done.returncode == 2
    why = "no cluster found: not a kubeconfig: not YAML"
    assert done.stderr.startswith(f"podsettle: {tmp_path}/broken: {why}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", ["pod", "pods", "po"])
def test_pod_name_with_a_kubectl_resource_prefix_is_accepted(kind: str) -> None:
    done = podsettle("wait", f"{kind}/step-1", "--kubeconfig", "/nope")
    assert done.stderr == "podsettle: /nope (--kubeconfig) does not exist\n"
    assert "'pod/x' is not a valid name" in podsettle("wait", "a", "-n", "pod/x").stderr
