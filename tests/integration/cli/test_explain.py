"""`podsettle explain` on manifests: its targets, and its errors."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.support.factories import Json, container, pod, policy_document
from webhook.cli import main

TEMPLATE = pod(container("prepare", "/prepare"))["spec"]


def namespace(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def pod_of(owner: str, name: str, where: str = "ci") -> Json:
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner,
               "controller": True}]  # fmt: skip
    metadata = {"name": name, "namespace": where, "ownerReferences": owners}
    return {**pod(), "metadata": metadata, "spec": TEMPLATE}


DUMP: list[Json] = [
    policy_document("quick", remedies={"postInitSleep": {"when": "Always"}}),
    namespace("ci"),
    namespace("other"),
    {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "build", "namespace": "ci", "uid": "build"},
        "spec": {"template": {"spec": TEMPLATE}},
    },
    pod_of("build", "build-1"),
    pod_of("deploy", "deploy-1"),
    pod_of("twice", "twice"),
    pod_of("twice", "twice", "other"),
]


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dump of a cluster, whose pods are in a List, as kubectl prints them."""
    path = tmp_path_factory.mktemp("dump") / "dump.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": DUMP}))
    return path


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["explain", *map(str, words)])


def answer(*words: str | Path) -> dict[str, Any]:
    result = run(*words, "-o", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_job_is_explained_from_a_dump_with_its_own_pods(dump: Path) -> None:
    found = answer("job/build", "--manifests", dump)
    assert found["verdict"] == "podsettle would change the next pod of this workload."
    assert [(each["count"], each["examples"]) for each in found["pods"]] == [(1, ["build-1"])]
    assert found["today"]["outcomes"][0]["reason"] == "Applied"


def test_namespace_chooses_between_pods_of_one_name(dump: Path) -> None:
    ambiguous = run("twice", "--manifests", dump)
    assert ambiguous.exit_code == 2
    assert "pod/twice: it is in ci, other; choose one with -n" in ambiguous.stderr
    assert answer("twice", "-n", "other", "--manifests", dump)["namespace"] == "other"


def test_reason_code_needs_no_cluster() -> None:
    result = run("NoCommand", "--kubeconfig", "/does/not/exist")
    assert result.exit_code == 0
    assert result.stdout.startswith("NoCommand: The container has no `command`")
    assert answer("NoCommand")["warns"] is True


def test_wrapper_needs_no_cluster_and_its_comments_leave_the_script_valid() -> None:
    commented = answer("wrapper", "--kubeconfig", "/does/not/exist")["commented"]
    for shell in ("sh", "bash"):
        subprocess.run([shell, "-n"], input=commented, text=True, check=True)
    assert "  # Pass a signal on to the command.\n" in run("wrapper").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent"], "pod/absent: it is not in the manifests"),
        (["build-1", "-n", "other"], "pod/build-1 in namespace other: it is not in the manifests"),
        (["deploy/web"], "deploy/web: it is not in the manifests"),
        (["NoComand"], "did you mean NoCommand?"),
    ],
)
def test_target_that_is_not_found_is_an_error_with_exit_code_2(
    words: list[str], message: str, dump: Path
) -> None:
    result = run(*words, "--manifests", dump)
    assert result.exit_code == 2
    assert message in result.stderr


def test_object_that_is_not_found_beside_subdirectories_is_an_error_that_says_what_is_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "pods").mkdir()
    result = run("absent", "--manifests", tmp_path)
    told = f"{tmp_path}; files in subdirectories are not read\n"
    assert result.stderr == f"podsettle: pod/absent: it is not in the manifests: {told}"


def test_policy_that_is_not_valid_is_reported_beside_the_explanation(
    dump: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(policy_document("bad", priority="high")))
    result = run("build-1", "--manifests", dump, "--manifests", tmp_path)
    assert result.exit_code == 0
    assert "bad.yaml" in result.stderr
    assert "priority" in result.stderr


def test_malformed_pod_is_an_error_and_no_crash(tmp_path: Path) -> None:
    broken = {**pod(), "spec": {"containers": "none"}}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(broken))
    result = run("p", "--manifests", tmp_path)
    assert result.exit_code == 2
    assert "pod/p: the pod cannot be read: Expected `array | null`" in result.stderr
