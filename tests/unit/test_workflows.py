"""Tests of .github/workflows: what `make lint` does not check there."""

from __future__ import annotations

import re
import shlex

import yaml

from tests.support.paths import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
TEXTS = {path.name: path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml")}
CHECKS = yaml.safe_load(TEXTS["nightly.yml"])["jobs"]["check"]["strategy"]["matrix"]


def targets_of(arguments: str) -> set[str]:
    """The targets among the arguments of make: neither variables nor placeholders."""
    return {word for word in shlex.split(arguments) if "=" not in word and not word.startswith("$")}


def test_each_target_that_a_workflow_or_ci_names_is_in_the_makefile() -> None:
    for name, text in {**TEXTS, ".ci/run": (ROOT / ".ci/run").read_text()}.items():
        named = re.findall(r"(?:run: |^ +|then |tests \S+ |^)make ([a-z-]+)", text, re.MULTILINE)
        assert named, name
        assert set(named) <= TARGETS, name


def test_each_action_is_pinned_by_a_commit_and_names_its_release() -> None:
    for text in TEXTS.values():
        for line in re.findall(r"uses: (.+)", text):
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_nightly_workflow_runs_every_check_of_make_nightly() -> None:
    checks = [*CHECKS["check"], *(each["check"] for each in CHECKS["include"])]
    (loop,) = re.findall(
        r"^\t@failed=; for check in (.+?);", MAKEFILE.replace("\\\n", " "), re.MULTILINE
    )
    wanted = {check.partition(" ")[0] for check in shlex.split(loop)}
    assert set().union(*map(targets_of, checks)) == wanted <= TARGETS
    (versions,) = re.findall(r"^KUBE_VERSIONS \?= (.+)$", MAKEFILE, re.MULTILINE)
    assert re.findall(r"KUBE_VERSIONS=(\S+)", " ".join(checks)) == versions.split()


def test_unit_tests_run_on_each_python_that_the_package_names() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    jobs = yaml.safe_load(TEXTS["ci.yml"])["jobs"]
    assert jobs["unit"]["strategy"]["matrix"]["python"] == named
