"""Tests of `podsettle scan -o policy --native` on a dump with planted symptoms."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.support import planted_symptoms
from webhook.cli import main

NOW = datetime(2026, 11, 22, 10, tzinfo=UTC)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(planted_symptoms.dump("ci", NOW)))
    return path


def scan(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["scan", *map(str, arguments)])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--native"], "--native has no effect without -o policy"),
        (["--native", "-o", "json"], "--native has no effect without -o policy"),
        (["--mutate", "-o", "policy"], "--mutate has no effect without -o policy --native"),
    ],
)
def test_flag_without_the_output_that_it_changes_is_refused(
    flags: list[str], message: str, dump: Path
) -> None:
    result = scan("--manifests", dump, *flags)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.parametrize(
    ("flags", "kind"),
    [([], "ValidatingAdmissionPolicy"), (["--mutate"], "MutatingAdmissionPolicy")],
)
def test_proposals_are_printed_as_native_policies(flags: list[str], kind: str, dump: Path) -> None:
    result = scan("--manifests", dump, "-o", "policy", "--native", *flags)
    assert result.exit_code == 1
    documents = list(yaml.safe_load_all(result.stdout))
    assert {each["kind"] for each in documents} == {kind, f"{kind}Binding"}
    names = {each["metadata"]["name"] for each in documents if each["kind"] == kind}
    assert names == {
        f"settle-{each}.podsettle.dev" for each in ("runtimeclass", "fsgroupchangepolicy")
    }
    assert "\n# fs-group: " in result.stdout
    assert "# The policy changes 2 of the 2 pods found." in result.stdout


def test_left_out_proposals_are_named_in_the_comment_and_beside_a_pipe(dump: Path) -> None:
    result = scan("--manifests", dump, "-o", "policy", "--native")
    comment = " ".join(
        line.removeprefix("#").strip() for line in result.stdout.partition("\n---\n")[0].split("\n")
    )
    assert "- settle-kubeletgate: kubeletGate: it adds an init container" in comment
    assert "settle-kubeletgate: kubeletGate: it adds an init container" in result.stderr
    assert "podsettle's webhook can do it. The policies for it: podsettle scan" in comment
    assert "Found, but no policy is proposed: - selinux-relabel: " in comment
    assert "RuntimeClass 'selinux-fix-runtime-class' does not exist" in comment
    assert f"podsettle scan --manifests {dump} -o policy --native --mutate | kubectl" in comment


def test_scan_without_a_proposal_prints_no_comment(dump: Path) -> None:
    result = scan("--manifests", dump, "-n", "other", "-o", "policy", "--native")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no policy is proposed" in result.stderr
