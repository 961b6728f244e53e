"""The policies for CI systems select the pods of every release that the table of labels names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support.factories import is_policy
from tests.support.markdown import ALL, Page
from tests.support.paths import DOCS, EXAMPLES, ROOT
from webhook.core.policy.model import parse_policy
from webhook.core.policy.selectors import compile_selector

TABLE = DOCS / "policies.md"
UI_EXAMPLES = ROOT / "webhook" / "server" / "page" / "examples"


class Row(NamedTuple):
    """A row of the table: the labels that the pods of some releases have."""

    system: str
    releases: str
    labels: dict[str, str]
    selector: str


def rows() -> list[Row]:
    """The rows of the table on the page."""
    (section,) = re.findall(
        r"^## The labels of CI pods$(.*?)^## ", TABLE.read_text(), re.DOTALL | re.MULTILINE
    )
    lines = [line for line in section.split("\n") if line.startswith("| ")][1:]
    found = []
    for line in lines:
        system, releases, labels, selector = [cell.strip() for cell in line.split("|")[1:5]]
        (key,) = re.findall("`([^`]+)` exists", selector)
        pairs = (text.partition(": ") for text in re.findall("`([^`]+)`", labels))
        found.append(
            Row(system, releases, {name: value.strip('"') or "x" for name, _, value in pairs}, key)
        )
    return found


ROWS = rows()


class CiPolicies(NamedTuple):
    """The policies of one file that select the pods of a system, and do the same."""

    file: Path
    documents: list[Any]

    def select(self, labels: dict[str, str]) -> bool:
        """Return whether one of them selects a pod with these labels."""
        selectors = (parse_policy(each).spec.pod_selector for each in self.documents)
        return any(compile_selector(each)(labels) for each in selectors)


def policies_of(path: Path) -> list[Any]:
    if path.suffix == ".md":
        return Page(path).policies
    return [each for each in yaml.safe_load_all(path.read_text()) if is_policy(each)]


def ci_policies() -> Iterator[tuple[str, CiPolicies]]:
    """Yield the policies for each system, by file and by what they do."""
    files = [*ALL, EXAMPLES / "policies.yaml", *sorted(UI_EXAMPLES.glob("*.yaml"))]
    for path in files:
        groups: dict[tuple[str, str], CiPolicies] = {}
        for document in policies_of(path):
            keys = set(re.findall(r"key: ['\"]?([\w./-]+)", yaml.safe_dump(document["spec"])))
            for system in {row.system for row in ROWS if keys & row.labels.keys()}:
                key = (system, str(document["spec"]["remedies"]))
                groups.setdefault(key, CiPolicies(path, [])).documents.append(document)
        for (system, _), found in groups.items():
            yield system, found


POLICIES = list(ci_policies())


def test_table_names_the_systems_and_the_policies_are_found() -> None:
    assert {"Woodpecker", "Tekton", "Argo Workflows", "GitLab Runner"} <= {r.system for r in ROWS}
    files = {found.file.name for _, found in POLICIES}
    assert {"policies.yaml", "kubelet-gate.md", "woodpecker-logs-tls.yaml"} <= files
    assert "exit-255.md" in files


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.system} {row.releases}")
def test_recommended_selector_selects_the_pods_of_the_releases(row: Row) -> None:
    assert row.selector in row.labels


@pytest.mark.parametrize(
    ("system", "found"), POLICIES, ids=[f"{f.file.name}-{system}" for system, f in POLICIES]
)
def test_policy_selects_the_pods_of_every_release(system: str, found: CiPolicies) -> None:
    for row in ROWS:
        if row.system == system:
            assert found.select(row.labels), (row, found)


@pytest.mark.parametrize("name", ["woodpecker-step", "woodpecker-step-before-3-5"])
def test_example_pod_has_the_labels_of_its_releases(name: str) -> None:
    pod = yaml.safe_load((EXAMPLES / "pods" / f"{name}.yaml").read_text())
    old, new = (row.labels.keys() for row in ROWS if row.system == "Woodpecker")
    labels = pod["metadata"]["labels"].keys()
    assert labels == old if name.endswith("before-3-5") else new <= labels
