"""Tests of `podsettle export`: its output, its comments, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.support.factories import policy_document
from tests.support.paths import EXAMPLES
from tests.support.process import podsettle

FS_GROUP = {"fsGroupChangePolicy": "OnRootMismatch"}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "worker"},
    "status": {
        "nodeInfo": {"containerRuntimeVersion": "cri-o://1.36.0", "kubeletVersion": "v1.36.0"}
    },
}


def manifests(tmp_path: Path, *documents: object) -> Path:
    path = tmp_path / "policies.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


def comment_of(text: str) -> str:
    """Return the comment in front of the first document, in one line."""
    lines = text.partition("\n---\n")[0].splitlines()
    assert all(line.startswith("# ") for line in lines), lines
    return " ".join(line.removeprefix("# ").strip() for line in lines)


def test_policies_are_printed_after_the_command_that_repeats_it() -> None:
    done = podsettle("export", "many-files", "--manifests", EXAMPLES)
    assert (done.returncode, done.stderr) == (0, "")
    comment = comment_of(done.stdout)
    assert f"podsettle export many-files --manifests {EXAMPLES}" in comment
    assert "need Kubernetes 1.36 or later" in comment
    assert "# SettlePolicy many-files: Do not change the owner" in done.stdout
    written = list(yaml.safe_load_all(done.stdout))
    assert [each["kind"] for each in written] == [
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicyBinding",
    ]


def test_part_that_is_not_native_is_left_out_and_named() -> None:
    done = podsettle("export", "--manifests", EXAMPLES)
    assert done.returncode == 1
    comment = comment_of(done.stdout)
    for left_out in ("tekton-on-crio: postInitSleep: it", "retry-prepare: retryInitExit255: it"):
        assert f"podsettle: export: left out: {left_out}" in done.stderr
        assert f"- {left_out}" in comment.partition("Cannot be exported: ")[2]
    assert "delete this line of the SettlePolicy first" in comment, "an example has action: Audit"
    names = {each["metadata"]["name"] for each in yaml.safe_load_all(done.stdout)}
    assert "many-files.podsettle.dev" in names
    assert "tekton-on-crio.podsettle.dev" not in names


def test_proposals_of_a_scan_are_exported_from_a_pipe() -> None:
    source = ("--manifests", EXAMPLES / "scan")
    proposed = podsettle("scan", "-o", "policy", *source).stdout
    audit = policy_document("p", action="Audit", remedies=FS_GROUP)
    stdin = f"{proposed}---\n{yaml.safe_dump(audit)}"
    done = podsettle("export", "-", *source, stdin=stdin)
    assert done.returncode == 1, "postInitSleep is not native"
    assert "- settle-postinitsleep: postInitSleep: it wraps" in comment_of(done.stdout)
    assert "They need Kubernetes 1.30 or later" in comment_of(done.stdout)
    policy, _ = yaml.safe_load_all(done.stdout)
    assert (policy["kind"], policy["metadata"]["name"]) == (
        "ValidatingAdmissionPolicy",
        "p.podsettle.dev",
    )
    acting = podsettle("export", "-", stdin=stdin.replace("  action: Audit\n", ""))
    kinds = [each["kind"] for each in yaml.safe_load_all(acting.stdout)]
    assert kinds[0] == "MutatingAdmissionPolicy"


POLICY = yaml.safe_dump(policy_document("p", remedies=FS_GROUP))


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        (
            POLICY + "---\nkind: Deployment\nmetadata: {name: web}\n",
            "stdin:10: Deployment/web: only SettlePolicies can be exported",
        ),
        (json.dumps({"kind": "List", "items": [NODE]}), "stdin:1: Node/worker: only Settle"),
        (json.dumps({"kind": "Secret", "metadata": 5}), "stdin:1: Secret/(unnamed): only Settle"),
        (POLICY + "---\n" + POLICY, "stdin:10: a second SettlePolicy named 'p'"),
        (POLICY.replace("fsGroupChangePolicy", "fsGroup"), "stdin:8: spec.remedies.fsGroup"),
        ("a: [}", "stdin:1: not YAML"),
        ("", "standard input has no SettlePolicy"),
    ],
)
def test_anything_but_policies_on_standard_input_is_refused(stdin: str, message: str) -> None:
    done = podsettle("export", "-", stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_standard_input_takes_no_name_and_is_read_once() -> None:
    assert "give no name" in podsettle("export", "-", "p", stdin=POLICY).stderr
    done = podsettle("export", "-", "--manifests", "-", stdin=POLICY)
    assert (done.returncode, "only once" in done.stderr) == (2, True)


def test_decision_by_the_nodes_is_printed_with_its_date(tmp_path: Path) -> None:
    both = policy_document("p", remedies={"postInitSleep": {}, **FS_GROUP})
    done = podsettle("export", "--manifests", manifests(tmp_path, both, NODE))
    assert done.returncode == 0
    comment = comment_of(done.stdout)
    assert "Decided by the nodes of 20" in comment
    assert "- p: postInitSleep is left out: none of 1 nodes runs an affected CRI-O" in comment
    (first, *_) = yaml.safe_load_all(done.stdout)
    names = {each["name"] for each in first["spec"]["variables"]}
    assert "fsGroupChangePolicy" in names
    assert "postInitSleep" not in names


def test_beta_api_names_the_flags_that_it_needs(tmp_path: Path) -> None:
    path = manifests(tmp_path, policy_document("p", remedies=FS_GROUP))
    done = podsettle("export", "--api-version", "v1beta1", "--manifests", path)
    assert "--feature-gates=MutatingAdmissionPolicy=true" in done.stdout
    assert "--runtime-config=admissionregistration.k8s.io/v1beta1=true" in done.stdout
    (first, *_) = yaml.safe_load_all(done.stdout)
    assert first["apiVersion"] == "admissionregistration.k8s.io/v1beta1"


def test_guard_needs_no_mutating_policies(tmp_path: Path) -> None:
    path = manifests(tmp_path, policy_document("p", remedies=FS_GROUP))
    done = podsettle("export", "--guard", "--manifests", path)
    assert done.returncode == 0
    assert "They need Kubernetes 1.30 or later." in comment_of(done.stdout)
    assert comment_of(done.stdout).count("--guard") == 1
    kinds = {each["kind"] for each in yaml.safe_load_all(done.stdout)}
    assert kinds == {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}


def test_json_is_one_list_with_the_comments_on_standard_error(tmp_path: Path) -> None:
    path = manifests(tmp_path, policy_document("p", remedies=FS_GROUP))
    done = podsettle("export", "-o", "json", "--manifests", path)
    assert [each["kind"] for each in json.loads(done.stdout)["items"]] == [
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    ]
    assert "podsettle: Written by podsettle" in done.stderr


def test_name_that_kubectl_reads_as_a_number_is_quoted(tmp_path: Path) -> None:
    path = tmp_path / "policies.json"
    path.write_text(json.dumps(policy_document("1e5", remedies=FS_GROUP)))
    done = podsettle("export", "--manifests", path)
    assert done.returncode == 0, done.stderr
    assert "podsettle.dev/exported-from: '1e5'\n" in done.stdout


def test_unknown_policy_is_an_error_that_names_the_others(tmp_path: Path) -> None:
    path = manifests(tmp_path, policy_document("p", remedies=FS_GROUP))
    done = podsettle("export", "q", "--manifests", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no SettlePolicy q; there are: p" in done.stderr


def test_path_in_place_of_a_name_is_refused_with_the_option_that_reads_it() -> None:
    path = EXAMPLES / "policies.yaml"
    done = podsettle("export", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--manifests {path}" in done.stderr


def test_empty_export_says_why(tmp_path: Path) -> None:
    audit = policy_document("p", action="Audit", remedies=FS_GROUP)
    done = podsettle("export", "--guard", "--manifests", manifests(tmp_path, audit))
    assert done.returncode == 1
    assert "left out: p: guard: its `action: Audit` settles no pods" in done.stderr
    partly = podsettle("export", "retry-prepare", "--manifests", EXAMPLES)
    assert partly.returncode == 1
    assert "the comment of the output says what is left out" in partly.stderr


def test_manifests_with_errors_are_not_exported(tmp_path: Path) -> None:
    broken = policy_document("q", remedies={"unknown": {}})
    path = manifests(tmp_path, policy_document("p", remedies=FS_GROUP), broken)
    done = podsettle("export", "--manifests", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown" in done.stderr


def test_manifests_without_a_policy_are_an_error(tmp_path: Path) -> None:
    done = podsettle("export", "--manifests", manifests(tmp_path, NODE))
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no SettlePolicy" in done.stderr
