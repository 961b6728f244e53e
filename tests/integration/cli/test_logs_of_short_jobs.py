"""docs/exit-255.md: the policy with which a log agent finds the logs of short containers."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path

import pytest
import yaml

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
from tests.support.markdown import Page
from tests.support.paths import DOCS, EXAMPLES
from tests.support.process import podsettle
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


def test_policy_wraps_by_the_shell_or_the_helper(policy: Json) -> None:
    for command, first in (
        (("/bin/sh", "-c", "echo a; exit 3"), "/bin/sh"),
        (("/bin/busybox", "echo", "a"), HELPER_PATH),
    ):
        (main,) = mutate_pod(job(*command), cluster(policy))["spec"]["containers"]
        assert main["command"][0] == first
        assert main["command"][-len(command) :] == [*command]


def test_minimum_lifetime_of_the_policy_exceeds_the_scan_interval(policy: Json) -> None:
    remedy = parse_policy(policy).spec.settings()["postInitSleep"]
    assert remedy.min_lifetime > 10_000


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
