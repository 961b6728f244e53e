"""What `podsettle scan` prints of small dumps, and that `explain` finds the same in each pod."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.axe import grave_findings
from tests.support.chromium import start_chromium
from tests.support.paths import EXAMPLES, ROOT
from webhook.cli import main

GOLDEN = ROOT / "tests" / "golden" / "scan"
DUMPS = {"examples": EXAMPLES / "scan", **{each.stem: each for each in GOLDEN.glob("*.yaml")}}
"""Each dump says in its first line what it is. The text beside it is written by --update-golden."""


@pytest.fixture(params=sorted(DUMPS))
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(ROOT)
    return str(request.param)


def test_scan_prints_the_text_and_the_policies_of_each_dump(
    name: str, golden: Callable[[Path, str], None]
) -> None:
    words = ["scan", "--manifests", str(DUMPS[name].relative_to(ROOT))]
    printed = ""
    for options in ([], ["-o", "policy"], ["-o", "name"]):
        done = CliRunner().invoke(main, [*words, *options])
        printed += f"$ podsettle {' '.join([*words, *options])}\n{done.output}"
        printed += f"exit code {done.exit_code}\n\n"
    golden(GOLDEN / f"{name}.txt", printed)


def test_html_says_that_nodes_have_a_defect_before_it_says_that_no_pod_shows_one() -> None:
    words = ["scan", "--manifests", str(DUMPS["defect-without-symptom"]), "-o", "html"]
    text = " ".join(CliRunner().invoke(main, words).stdout.split())
    defect = "A defect is on 2 of 3 nodes, without a symptom yet: CRI-O reports exit code 255"
    assert text.index(defect) < text.index("No symptom was found")


def test_scan_and_explain_name_the_same_symptoms_of_each_pod(name: str) -> None:
    words = ["--manifests", str(DUMPS[name].relative_to(ROOT)), "-o", "json"]
    report = json.loads(CliRunner().invoke(main, ["scan", *words]).stdout)
    for finding in (each for symptom in report["symptoms"] for each in symptom["findings"]):
        if finding["symptom"] == "not-settled":
            continue
        pod = ["explain", f"pod/{finding['pod']}", "-n", finding["namespace"]]
        symptoms = json.loads(CliRunner().invoke(main, [*pod, *words]).stdout)["symptoms"]
        found = {each["symptom"]: each["certainty"] for each in symptoms}
        assert found[finding["symptom"]] == finding["certainty"]


@pytest.mark.needs("chromium", "chromedriver")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_html_has_no_barrier_for_people_with_disabilities(scheme: str, tmp_path: Path) -> None:
    page = tmp_path / "scan.html"
    with start_chromium(tmp_path / "profile") as browser:
        browser.emulate(scheme=scheme, width=320)
        for name in ("several-symptoms", "policy-in-force", "healthy"):
            words = ["scan", "--manifests", str(DUMPS[name]), "-o", "html"]
            page.write_text(CliRunner().invoke(main, words).stdout)
            browser.open(page.as_uri())
            browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
            assert grave_findings(browser) == []
            assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
