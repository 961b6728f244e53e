"""Tests of .github/workflows: what `make lint` does not check there."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import yaml

from tests.support.paths import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}
CHECKS: list[str] = [
    *WORKFLOWS["nightly.yml"]["jobs"]["check"]["strategy"]["matrix"]["check"],
    *(
        each["check"]
        for each in WORKFLOWS["nightly.yml"]["jobs"]["check"]["strategy"]["matrix"]["include"]
    ),
]


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in WORKFLOWS[name]["jobs"].values() for step in job["steps"]]


def targets_of(arguments: str) -> set[str]:
    """The targets among the arguments of make: neither variables nor placeholders."""
    return {word for word in shlex.split(arguments) if "=" not in word and not word.startswith("$")}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_each_command_of_a_workflow_is_a_target_of_the_makefile(name: str) -> None:
    commands = [step["run"] for step in steps(name) if "run" in step]
    assert commands
    for command in commands:
        program, _, arguments = command.partition(" ")
        assert program == "make", command
        assert targets_of(arguments) <= TARGETS, command


@pytest.mark.parametrize("name", WORKFLOWS)
def test_each_action_is_pinned_by_a_commit_and_names_its_release(name: str) -> None:
    text = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
    for line in re.findall(r"uses: (.+)", text):
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_nightly_workflow_runs_every_check_of_make_nightly() -> None:
    (loop,) = re.findall(
        r"^\t@failed=; for check in (.+?);", MAKEFILE.replace("\\\n", " "), re.MULTILINE
    )
    wanted = {check.partition(" ")[0] for check in shlex.split(loop)}
    assert set().union(*map(targets_of, CHECKS)) == wanted
    (versions,) = re.findall(r"^KUBE_VERSIONS \?= (.+)$", MAKEFILE, re.MULTILINE)
    found = re.findall(r"KUBE_VERSIONS=(\S+)", " ".join(CHECKS))
    assert found == versions.split()


def test_unit_tests_run_on_each_python_that_the_package_names() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert WORKFLOWS["ci.yml"]["jobs"]["unit"]["strategy"]["matrix"]["python"] == named
