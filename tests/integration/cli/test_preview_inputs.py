"""Tests of what `podsettle preview` decides by: manifests, policies of the input, or a cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.support.paths import EXAMPLES
from tests.support.process import podsettle

TEKTON = EXAMPLES / "pods" / "tekton-taskrun.yaml"


def test_manifests_are_files_and_directories_given_repeatedly_or_in_the_environment(
    tmp_path: Path,
) -> None:
    policies, cluster = EXAMPLES / "policies.yaml", EXAMPLES / "cluster.yaml"
    expected = podsettle("preview", "--manifests", EXAMPLES, TEKTON).stdout
    options = ("--manifests", policies, "--manifests", cluster)
    assert podsettle("preview", *options, TEKTON).stdout == expected
    env = {"PODSETTLE_MANIFESTS": os.pathsep.join(map(str, (policies, cluster)))}
    assert podsettle("preview", TEKTON, env=env).stdout == expected
    env["PODSETTLE_LINGER_IMAGE"] = "image.example/l"
    assert "from image.example/l" in podsettle("preview", TEKTON, env=env).stdout
    done = podsettle("preview", "--manifests", tmp_path / "none", TEKTON)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"podsettle: {tmp_path / 'none'}: No such file or directory\n"


def test_unknown_namespace_is_said_on_standard_error_and_in_json() -> None:
    arguments = ("preview", "--manifests", EXAMPLES, "-n", "no-such", TEKTON)
    done = podsettle(*arguments, "-o", "json")
    note = "namespace 'no-such' is not in the manifests: it is treated as one without labels"
    (pod,) = json.loads(done.stdout)["pods"]
    assert (pod["namespaceKnown"], pod["notes"]) == (False, [note])
    assert done.stderr == f"podsettle: {note}\n"
    labelled = podsettle(*arguments, "-o", "json", "--namespace-label", "a=b")
    (pod,) = json.loads(labelled.stdout)["pods"]
    assert (pod["namespaceKnown"], pod["notes"], labelled.stderr) == (True, [], "")


POLICY = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: tekton-on-crio}
spec:
  namespaceSelector: {}
  remedies: {REMEDY: {}}
"""


def test_policy_among_the_paths_is_used_in_place_of_the_one_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("REMEDY", "kubeletGate"))
    done = podsettle("preview", "--manifests", EXAMPLES, "-o", "json", file, TEKTON)
    assert done.returncode == 0, done.stderr
    assert (
        f"podsettle: {file}:1: SettlePolicy/tekton-on-crio: a policy: this preview" in done.stderr
    )
    (pod,) = json.loads(done.stdout)["pods"]
    changed = {each["remedy"] for each in pod["outcomes"] if each["policy"] == "tekton-on-crio"}
    assert changed == {"kubeletGate"}


def test_invalid_policy_among_the_paths_exits_with_2_and_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("REMEDY", "kubeletGat"))
    done = podsettle("preview", "--manifests", EXAMPLES, file, TEKTON)
    assert done.returncode == 2
    assert (
        f"podsettle: {file}:6: SettlePolicy/tekton-on-crio: spec.remedies.kubeletGat" in done.stderr
    )
    assert "Applied postInitSleep" in done.stdout


def test_preview_without_manifests_and_cluster_says_how_to_describe_one(tmp_path: Path) -> None:
    done = podsettle("preview", TEKTON)
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not exist" in done.stderr
    assert done.stderr.endswith("or describe a cluster in files: --manifests PATH\n")
    both = podsettle("preview", "--manifests", EXAMPLES, "--context", "x", TEKTON)
    assert both.returncode == 2
    assert (
        "give --manifests, or flags that choose a cluster such as --context, not both"
        in both.stderr
    )
    # The environment is only a default, which a flag replaces.
    env = {**os.environ, "PODSETTLE_MANIFESTS": str(EXAMPLES)}
    none = tmp_path / "none"
    chosen = podsettle("preview", "--kubeconfig", none, TEKTON, env=env)
    assert f"{none} (--kubeconfig) does not exist" in chosen.stderr
