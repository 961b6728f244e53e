"""podsettle preview."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.process import podsettle

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TEKTON = EXAMPLES / "pods" / "tekton-taskrun.yaml"
UNCOVERED = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a}]}}"


def test_text_gives_reasons_and_the_difference() -> None:
    done = podsettle("preview", "--manifests", EXAMPLES, TEKTON)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Pod/build-run-8k2mz-unit-pod in namespace ci  policies: tekton")
    assert "  Applied postInitSleep prepare: wrapped by the helper from podsettle/linger" in (
        done.stdout
    )
    assert "+    podsettle.dev/applied: tekton-on-crio/postInitSleep\n" in done.stdout
    assert "\x1b[" not in done.stdout


def test_diff_patch_yaml_and_json_say_the_same() -> None:
    outputs = {
        kind: podsettle("preview", "--manifests", EXAMPLES, "-o", kind, TEKTON).stdout
        for kind in ("text", "diff", "patch", "yaml", "json")
    }
    assert outputs["diff"] in outputs["text"]
    (pod,) = json.loads(outputs["json"])["pods"]
    assert json.loads(outputs["patch"]) == pod["patch"]
    assert yaml.safe_load(outputs["yaml"]) == pod["after"]
    assert outputs["diff"] == pod["diff"]


def test_a_directory_and_standard_input() -> None:
    done = podsettle("preview", "--manifests", EXAMPLES, "-o", "json", EXAMPLES / "pods", "-",
                     stdin=UNCOVERED)  # fmt: skip
    pods = json.loads(done.stdout)["pods"]
    assert len(pods) == len(list((EXAMPLES / "pods").iterdir())) + 1
    assert pods[-1]["name"] == "a"
    assert pods[-1]["patch"] == []


def test_fail_on_change() -> None:
    arguments = ("preview", "--manifests", EXAMPLES, "--fail-on-change")
    assert podsettle(*arguments, TEKTON).returncode == 1
    assert podsettle(*arguments, "-", stdin=UNCOVERED).returncode == 0


def test_namespace_and_labels_can_be_given() -> None:
    arguments = ("preview", "--manifests", EXAMPLES, "-o", "json", "-n", "kube-system", TEKTON)
    (pod,) = json.loads(podsettle(*arguments).stdout)["pods"]
    assert pod["outcomes"][0]["reason"] == "ProtectedNamespace"
    labelled = (*arguments, "-n", "x", "--namespace-label", "podsettle.dev/enabled=false")
    (pod,) = json.loads(podsettle(*labelled).stdout)["pods"]
    assert pod["outcomes"][0]["reason"] == "NamespaceDisabled"


def test_other_labels_leave_the_namespace_s_selinux_level_as_it_is() -> None:
    volumes = "volumes: [{name: a, persistentVolumeClaim: {claimName: a}}]"
    spec = f"{{containers: [{{name: a}}], {volumes}}}"
    pod = f"{{kind: Pod, metadata: {{name: a, namespace: sample-namespace}}, spec: {spec}}}"
    arguments = ("preview", "--manifests", EXAMPLES, "--namespace-label", "storage=large", "-")
    done = podsettle(*arguments, stdin=pod)
    assert "Applied skipSELinuxRelabel: annotated, put under selinux-fix" in done.stdout


def test_the_environment_stands_in_for_options() -> None:
    env = {"PODSETTLE_MANIFESTS": str(EXAMPLES), "PODSETTLE_LINGER_IMAGE": "image.example/l"}
    done = podsettle("preview", TEKTON, env=env)
    assert "wrapped by the helper from image.example/l" in done.stdout


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        ("kind: Service", "stdin:1: the document is a Service, and podsettle does not know where"),
        ("a: 1\na: 2", "stdin:2: key 'a' stands twice"),
        ("kind: Pod\nmetadata: {}", "stdin:1: spec of this Pod is missing"),
    ],
)
def test_bad_input_is_exit_code_2_with_file_and_line(stdin: str, words: str) -> None:
    done = podsettle("preview", "--manifests", EXAMPLES, "-", stdin=stdin)
    assert done.returncode == 2
    assert done.stderr.startswith(f"podsettle: {words}")
    assert done.stdout == ""


def test_a_missing_file_is_exit_code_2(tmp_path: Path) -> None:
    done = podsettle("preview", "--manifests", EXAMPLES, tmp_path / "none.yaml")
    assert done.returncode == 2
    assert done.stderr == f"podsettle: {tmp_path / 'none.yaml'}: No such file or directory\n"


def test_a_broken_policy_is_said_and_the_others_count(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text((EXAMPLES / "policies.yaml").read_text())
    (tmp_path / "bad.yaml").write_text("apiVersion: podsettle.dev/v1alpha1\nkind: SettlePolicy\n")
    done = podsettle("preview", "--manifests", tmp_path, TEKTON)
    assert done.returncode == 2
    assert done.stderr.count(f"{tmp_path / 'bad.yaml'}:1: metadata: is missing") == 1
    assert "Applied postInitSleep" in done.stdout


def test_a_view_without_a_node_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text((EXAMPLES / "policies.yaml").read_text())
    done = podsettle("preview", "--manifests", tmp_path, TEKTON, TEKTON, "-n", "x",
                     "--namespace-label", "a=b")  # fmt: skip
    note = (
        f"podsettle: no Node in {tmp_path}: remedies with `when: NodesNeedIt` are taken as needed\n"
    )
    assert (done.returncode, done.stderr) == (0, note)
    assert "no Node" not in podsettle("preview", "--manifests", EXAMPLES, TEKTON).stderr
