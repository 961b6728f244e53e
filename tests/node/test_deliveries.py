"""Tests of the deliveries of postInitSleep and openFiles on a real kubelet and a real runtime.

Each container runs once as it is, in a namespace without a policy, and once for each delivery. The
two have to end in the same way.

The cases run side by side, as the containers of one pod for each delivery.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import NamedTuple

import pytest

from tests.support.kube.cluster import Json
from tests.support.node.attach import type_into
from tests.support.node.deliveries import (
    BOTH,
    DELIVERIES,
    FINALIZER,
    LIMITED,
    LONG,
    LONG_SECONDS,
    PLAIN,
    WITH_HELPER,
    Settled,
    namespace_of,
    policy_of,
)
from tests.support.node.delivery_cases import (
    CASES,
    RANDOM_USER_ID,
    RESTRICTED,
    Case,
    act,
    container,
    in_shell,
)
from tests.support.node.images import NodeImages
from tests.support.node.pods import Ending, commands, ending, exit_codes, states, wrapper_of
from tests.support.waiting import await_that
from webhook.core.constants import HELPER, LABEL_POLICY


class Run(NamedTuple):
    """A pod with many cases as its containers."""

    delivery: str
    shell: str
    """The image of the cases that need a shell."""

    @property
    def name(self) -> str:
        return f"cases-{self.shell}"

    @property
    def cases(self) -> Mapping[str, Case]:
        """All cases that the delivery can wrap."""
        return {
            name: case
            for name, case in CASES.items()
            if not (case.needs_helper and self.delivery.endswith("Shell"))
            and not (case.image != "shell" and self.shell == "bash")
        }


PLAIN_RUNS = (Run(PLAIN, "busybox"), Run(PLAIN, "bash"))
RUNS = (
    Run("Shell", "busybox"),
    Run("Shell", "bash"),
    Run("Binary", "busybox"),
    Run("ImageVolume", "busybox"),
    Run("LimitsShell", "busybox"),
    Run("LimitsShell", "bash"),
    Run("LimitsBinary", "busybox"),
    Run("LimitsImageVolume", "busybox"),
    Run(BOTH, "bash"),
)


def _cases_spec(run: Run, images: NodeImages) -> Json:
    shell = images.named(run.shell)
    return {
        "hostname": "deliveries",  # HOSTNAME in the environment is the same in all pods
        "securityContext": {"supplementalGroups": [5555]},
        "containers": [
            container(name, case, shell if case.image == "shell" else images.named(case.image))
            for name, case in run.cases.items()
        ],
    }


@pytest.fixture(scope="module")
def case_pods(settled: Settled) -> Mapping[Run, Json]:
    """The pods of all cases, after their end."""
    for run in (*PLAIN_RUNS, *RUNS):
        settled.create(run.delivery, run.name, _cases_spec(run, settled.images))
    return {run: settled.await_end(run.delivery, run.name) for run in (*PLAIN_RUNS, *RUNS)}


def _ending(settled: Settled, case_pods: Mapping[Run, Json], run: Run, case: str) -> Ending:
    return ending(case_pods[run], case, settled.log(run.delivery, run.name, case))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.delivery}-{run.shell}")
def test_all_containers_of_the_cases_are_wrapped(run: Run, case_pods: Mapping[Run, Json]) -> None:
    expected = "Shell" if run.delivery.endswith("Shell") else "helper"
    for name, command in commands(case_pods[run]).items():
        if name != HELPER:
            in_shell_by_auto = run.delivery == BOTH and not CASES[name].needs_helper
            assert wrapper_of(command) == ("Shell" if in_shell_by_auto else expected), name


@pytest.mark.parametrize(
    ("run", "case"),
    [(run, case) for run in RUNS for case in run.cases],
    ids=lambda value: f"{value.delivery}-{value.shell}" if isinstance(value, Run) else value,
)
def test_wrapped_container_ends_as_the_same_container_without_podsettle(
    run: Run, case: str, settled: Settled, case_pods: Mapping[Run, Json]
) -> None:
    wrapped = _ending(settled, case_pods, run, case)
    assert wrapped == _ending(settled, case_pods, Run(PLAIN, run.shell), case)
    expected = CASES[case]
    assert wrapped.exit_code == expected.exit_code
    assert wrapped.reason == expected.expected_reason
    assert wrapped.message == expected.message
    assert set(expected.lines) <= set(wrapped.log)


def _seconds(state: Json) -> int:
    """Return the lifetime of a container, in the whole seconds that its status has."""
    ended = state["terminated"]
    begin, end = (datetime.fromisoformat(ended[key]) for key in ("startedAt", "finishedAt"))
    return int((end - begin).total_seconds())


def test_minimum_lifetime_keeps_quick_containers_alive_and_delays_no_slower_one(
    settled: Settled,
) -> None:
    image = settled.images.busybox
    spec = {
        "initContainers": [in_shell("quick", "true", image)],
        "containers": [in_shell("slow", f"sleep {LONG_SECONDS + 1}", image)],
    }
    pods = {delivery: settled.run(delivery, "lifetimes", spec) for delivery in (PLAIN, LONG)}
    seconds = {
        delivery: {name: _seconds(state) for name, state in states(pod).items()}
        for delivery, pod in pods.items()
    }
    # Times in a status are cut to whole seconds, so a difference may be one second short.
    assert seconds[PLAIN]["quick"] < LONG_SECONDS - 1 <= seconds[LONG]["quick"]
    assert seconds[LONG]["slow"] <= seconds[PLAIN]["slow"] + 1


def test_failed_init_container_ends_the_pod_with_its_exit_code(settled: Settled) -> None:
    image = settled.images.busybox
    spec = {
        "initContainers": [
            in_shell("first", "true", image),
            in_shell("second", "echo before; exit 3", image),
            in_shell("third", "true", image),
        ],
        "containers": [in_shell("main", "true", image)],
    }
    for delivery, pod in settled.run_in((PLAIN, *DELIVERIES, *LIMITED), "failed-init", spec):
        assert pod["status"]["phase"] == "Failed", delivery
        codes = {name: code for name, code in exit_codes(pod).items() if name != HELPER}
        assert codes == {"first": 0, "second": 3}, delivery
        assert settled.log(delivery, "failed-init", "second") == "before\n", delivery


SIDECAR = """
trap 'echo stopped; exit 6' TERM
touch /shared/sidecar
while :; do sleep 0.1; done
"""


def test_sidecar_runs_unwrapped_beside_wrapped_containers_and_is_stopped_after_them(
    settled: Settled,
) -> None:
    image = settled.images.busybox
    mounts = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    wait = "until [ -e /shared/sidecar ]; do sleep 0.1; done"
    spec = {
        "volumes": [{"name": "shared", "emptyDir": {}}],
        "initContainers": [
            in_shell("before", "true", image),
            in_shell("sidecar", SIDECAR, image, restartPolicy="Always", **mounts),
            in_shell("after", f"{wait}; echo seen", image, **mounts),
        ],
        "containers": [in_shell("main", "[ -e /shared/sidecar ]", image, **mounts)],
    }
    for delivery, pod in settled.run_in((PLAIN, *DELIVERIES), "sidecar", spec):
        wrapped = {name for name, command in commands(pod).items() if wrapper_of(command)}
        assert wrapped == ({"before", "after", "main"} if delivery else set()), delivery
        assert pod["status"]["phase"] == "Succeeded", delivery
        codes = {name: code for name, code in exit_codes(pod).items() if name != HELPER}
        assert codes == {"before": 0, "sidecar": 6, "after": 0, "main": 0}, delivery
        assert settled.log(delivery, "sidecar", "sidecar") == "stopped\n", delivery


HANDLES_TERM = """
trap 'echo terminated; exit 42' TERM
echo ready
while :; do sleep 0.1; done
"""


@pytest.mark.parametrize("delivery", [PLAIN, *DELIVERIES, *LIMITED, BOTH])
def test_deleted_pod_gives_sigterm_to_the_commands_which_choose_the_exit_code(
    delivery: str, settled: Settled
) -> None:
    images = settled.images
    containers = [in_shell("shell", HANDLES_TERM, images.busybox)]
    containers.append(in_shell("bash", HANDLES_TERM, images.bash))
    if not delivery.endswith("Shell"):
        static = act("await-term", "43")
        containers.append(container("static", static, images.static))
    settled.create(delivery, "deleted", {"containers": containers}, finalizers=[FINALIZER])
    names = [each["name"] for each in containers]
    settled.await_pod(delivery, "deleted", lambda pod: _all_running(pod, names))
    for name in names:
        await_that(
            lambda: "ready" in settled.log(delivery, "deleted", name),  # noqa: B023
            f"{name} is ready",
        )
    # Once a minute, the kubelet removes the logs of deleted pods that have ended.
    with ThreadPoolExecutor(len(names)) as pool:
        logs = {
            name: pool.submit(settled.log, delivery, "deleted", name, follow=True) for name in names
        }
        settled.delete(delivery, "deleted")
        pod = settled.await_end(delivery, "deleted")
    expected = {"shell": 42, "bash": 42, "static": 43}
    assert exit_codes(pod) == {
        **({HELPER: 0} if delivery.endswith("Binary") else {}),
        **{name: expected[name] for name in names},
    }
    for name in names:
        assert logs[name].result() == "ready\nterminated\n"
    settled.release(delivery, "deleted")


def _all_running(pod: Json, names: list[str]) -> bool:
    found = states(pod)
    return all("running" in found.get(name, {}) for name in names)


def test_pod_without_signal_handler_ends_within_its_grace_period(settled: Settled) -> None:
    """Process 1 ignores the signal, and the kubelet kills it in the end.

    With postInitSleep, the command is not process 1.
    """
    spec = {
        "containers": [in_shell("main", "exec sleep 1000", settled.images.busybox)],
        "terminationGracePeriodSeconds": 5,
    }
    every = (PLAIN, *DELIVERIES, *LIMITED)
    for delivery in every:
        settled.create(delivery, "no-handler", spec, finalizers=[FINALIZER])
    for delivery in every:
        settled.await_pod(delivery, "no-handler", lambda pod: _all_running(pod, ["main"]))
        settled.delete(delivery, "no-handler")
    for delivery in every:
        pod = settled.await_end(delivery, "no-handler")
        assert exit_codes(pod)["main"] == (143 if delivery in DELIVERIES else 137), delivery
        settled.release(delivery, "no-handler")


@pytest.mark.parametrize("delivery", [PLAIN, *WITH_HELPER, *LIMITED[1:], BOTH])
def test_container_with_a_terminal_reads_what_an_attached_client_types(
    delivery: str, settled: Settled
) -> None:
    terminal = act("terminal")
    one = container("main", terminal, settled.images.static) | {
        "stdin": True,
        "stdinOnce": True,
        "tty": True,
    }
    settled.create(delivery, "terminal", {"containers": [one]})
    settled.await_pod(delivery, "terminal", lambda pod: _all_running(pod, ["main"]))
    code, output = type_into(settled.cluster, namespace_of(delivery), "terminal", "typed\n")
    assert code == 0, output
    pod = settled.await_end(delivery, "terminal")
    assert exit_codes(pod)["main"] == 0
    log = settled.log(delivery, "terminal", "main")
    assert log.splitlines() == ["input 1 output 1", "typed", "read typed"]  # the second is the echo
    assert wrapper_of(commands(pod)["main"]) == ("helper" if delivery else "")


def test_container_with_a_terminal_is_left_as_it_is_by_the_shell_delivery(
    settled: Settled,
) -> None:
    one = in_shell("main", "[ -t 0 ] && exit 8", settled.images.busybox, stdin=True, tty=True)
    pod = settled.run("Shell", "terminal", {"containers": [one]})
    assert wrapper_of(commands(pod)["main"]) == ""
    assert exit_codes(pod)["main"] == 8


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_wrapped_pod_runs_in_a_namespace_that_enforces_restricted(
    delivery: str, settled: Settled
) -> None:
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    labels = {LABEL_POLICY: policy_of(delivery), **enforce}
    namespace = settled.node.namespace(f"restricted-{delivery.lower()}", labels)
    settled.await_policy(namespace)
    security = {**RESTRICTED, "runAsUser": RANDOM_USER_ID, "readOnlyRootFilesystem": True}
    image = settled.images.busybox
    spec = {
        "restartPolicy": "Never",
        "initContainers": [in_shell("first", "id -u", image, securityContext=security)],
        "containers": [in_shell("main", "id -u; exit 5", image, securityContext=security)],
    }
    pod = settled.node.run_pod(
        {"metadata": {"name": "restricted", "namespace": namespace}, "spec": spec}
    )
    assert all(wrapper_of(commands(pod)[name]) for name in ("first", "main"))
    codes = {name: code for name, code in exit_codes(pod).items() if name != HELPER}
    assert codes == {"first": 0, "main": 5}
    assert settled.node.logs(namespace, "restricted", "main") == f"{RANDOM_USER_ID}\n"
