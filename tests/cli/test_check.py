"""podsettle check."""

from __future__ import annotations

import json
from pathlib import Path

from tests.process import podsettle

EXAMPLES = Path(__file__).parents[2] / "examples"

BROKEN = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: one}
spec:
  remedies:
    postInitSleep:
      minLifetme: 500ms
      sleep: 10
---
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: two}
spec:
  remedies:
    runtimeClass: {name: a}
    skipSELinuxRelabel:
      runtimeClassName: b
"""


def test_the_examples_are_fine() -> None:
    done = podsettle("check", EXAMPLES)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "podsettle: 9 policies are fine\n"


def test_every_problem_has_file_line_and_path(tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(BROKEN)
    done = podsettle("check", file)
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == sorted([
        f"{file}:7: spec.remedies.postInitSleep.minLifetme: unknown key; did you mean minLifetime?",
        f"{file}:8: spec.remedies.postInitSleep.sleep: 10 is not a duration: "
        "write it as 10ms, 1.5s or 1m30s",
        f"{file}:17: spec.remedies.skipSELinuxRelabel.runtimeClassName: a pod has one "
        "RuntimeClass: this wants b and runtimeClass.name wants a",
    ])  # fmt: skip
    assert done.stderr == "podsettle: 3 problems; 0 policies are fine\n"


def test_json_for_tools() -> None:
    done = podsettle("check", "-o", "json", "-", stdin=BROKEN)
    assert done.returncode == 1
    problems = json.loads(done.stdout)
    assert {(p["source"], p["line"]) for p in problems} == {
        ("stdin", 7),
        ("stdin", 8),
        ("stdin", 17),
    }
    assert problems[0]["path"].startswith("spec.remedies.postInitSleep.")


def test_two_policies_of_one_name_in_two_files(tmp_path: Path) -> None:
    text = (EXAMPLES / "policies.yaml").read_text()
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(text.partition("---")[0])
    done = podsettle("check", tmp_path)
    assert done.returncode == 1
    assert done.stdout == (
        f"{tmp_path / 'b.yaml'}:3: a second SettlePolicy named 'tekton-on-crio'; "
        f"the one at {tmp_path / 'a.yaml'}:3 counts\n"
    )


def test_a_place_without_policies_is_a_finding(tmp_path: Path) -> None:
    done = podsettle("check", tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith(f"{tmp_path}: no SettlePolicy found (*.yaml, ")


def test_a_missing_file_is_exit_code_2(tmp_path: Path) -> None:
    done = podsettle("check", tmp_path / "none.yaml")
    assert done.returncode == 2
    assert "no such file" in done.stderr.lower()
