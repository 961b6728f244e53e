"""docs/exit-255.md: a log agent ships the log of a short container only with the policy."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.support import log_agent, runc
from tests.support.factories import (
    Json,
    container,
    decide_pod,
    is_policy,
    mutate_pod,
    namespace,
    node,
    pod,
    reasons,
    view,
)
from tests.support.log_agent import LogAgent
from tests.support.markdown import Page
from tests.support.paths import DOCS, EXAMPLES
from tests.support.process import podsettle
from tests.support.waiting import await_that
from webhook.core.constants import HELPER_PATH
from webhook.core.policy.model import parse_policy
from webhook.core.policy.snapshot import Snapshot

PAGE = Page(DOCS / "exit-255.md")
JOB = {"batch.kubernetes.io/job-name": "report"}
CONTAINERD = node("worker", "containerd://2.1.9", "v1.35.3")


@pytest.fixture
def policy() -> Json:
    """The policy of the page, as after the page's last step."""
    only = PAGE.policies[-1]
    found: Json = copy.deepcopy(only)
    del found["spec"]["action"]
    return found


def cluster(policy: Json) -> Snapshot:
    """Return a cluster with containerd nodes, in which the namespace opts in to the policy."""
    labels = {"podsettle.dev/policy": policy["metadata"]["name"]}
    return view(parse_policy(policy), namespaces=[namespace("ci", labels)], nodes=[CONTAINERD])


def job(*command: str) -> Json:
    return pod(containers=[container("main", *command)], labels=JOB, restartPolicy="Never")


def command_of(admitted: Json) -> list[str]:
    (main,) = admitted["spec"]["containers"]
    return [*main["command"], *main.get("args", ())]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[LogAgent]:
    """A running log agent."""
    with LogAgent.running(tmp_path / "agent") as started:
        yield started


@pytest.fixture
def machine_with_helper(machine: runc.Machine, linger: Path, tmp_path: Path) -> runc.Machine:
    """A machine with the helper at the path that admitted pods use."""
    rootfs = tmp_path / "rootfs"
    rootfs.mkdir()
    runc.make_rootfs(rootfs, linger)
    helper = rootfs / HELPER_PATH.lstrip("/")
    helper.parent.mkdir()
    shutil.copy2(linger, helper)
    return runc.Machine(rootfs, machine.scratch)


def test_log_agent_ships_the_log_of_a_short_pod_only_with_the_policy(
    agent: LogAgent, machine_with_helper: runc.Machine, policy: Json
) -> None:
    shell = job("/bin/sh", "-c", "echo said by the shell $0.; exit 3", "without")
    for_shell, for_program = (
        command_of(mutate_pod(each, cluster(policy)))
        for each in (
            job("/bin/sh", "-c", "echo said by the shell $0.; exit 3", "with"),
            job("/bin/busybox", "echo", "said by the program"),
        )
    )
    assert for_shell[0] == "/bin/sh"
    assert for_program[0] == HELPER_PATH

    # The container must run between two scans, so a run during a scan is repeated.
    for _ in range(5):
        agent.await_scan()
        next_scan = agent.place_probe()
        code = agent.run_pod(machine_with_helper, "plain", command_of(shell))
        if not agent.has_shipped(next_scan):
            break
    else:
        pytest.fail("in all attempts, the agent scanned while the container was running")
    assert code == 3

    with ThreadPoolExecutor() as threads:
        codes = [
            threads.submit(agent.run_pod, machine_with_helper, name, command)
            for name, command in (("shell", for_shell), ("program", for_program))
        ]
        assert [code.result() for code in codes] == [3, 0]
    for text in (next_scan, "said by the shell with.", "said by the program"):
        await_that(partial(agent.has_shipped, text), f"the agent shipped {text!r}")
    assert not agent.has_shipped("said by the shell without.")


def test_minimum_lifetime_of_the_policy_exceeds_the_scan_interval(policy: Json) -> None:
    remedy = parse_policy(policy).spec.settings()["postInitSleep"]
    assert remedy.min_lifetime > log_agent.INTERVAL_SECONDS * 1000


def test_default_when_leaves_pods_on_containerd_unchanged(policy: Json) -> None:
    quick = job("/bin/true")
    assert reasons(decide_pod(quick, cluster(policy))) == ["main: Applied"]
    del policy["spec"]["remedies"]["postInitSleep"]["when"]
    assert reasons(decide_pod(quick, cluster(policy))) == ["main: NotNeeded"]


def test_preview_prints_the_output_that_the_page_shows(tmp_path: Path) -> None:
    template = job("sh", "-c", "echo done")["spec"]
    template["containers"][0]["name"] = "quick"
    made = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "quick"},
        "spec": {"template": {"metadata": {}, "spec": template}},
    }
    (tmp_path / "logs.yaml").write_text(yaml.safe_dump_all(PAGE.policies[-1:]))
    of_node = {"apiVersion": "v1", "kind": "Node", **CONTAINERD}
    (tmp_path / "view.yaml").write_text(yaml.safe_dump(of_node))
    typed = PAGE.command("preview", "--namespace-label")
    arguments = [str(tmp_path / word) if word == "logs.yaml" else word for word in typed.arguments]
    env = {**os.environ, "PODSETTLE_MANIFESTS": str(tmp_path / "view.yaml")}
    done = podsettle(*arguments, stdin=json.dumps(made), env=env)
    assert done.returncode == 0, done.stderr
    assert typed.output
    assert set(typed.output) <= set(done.stdout.splitlines())


def test_policy_of_the_page_is_in_the_examples(policy: Json) -> None:
    documents = yaml.safe_load_all((EXAMPLES / "policies.yaml").read_text())
    examples = [document for document in documents if is_policy(document)]
    assert policy in examples
