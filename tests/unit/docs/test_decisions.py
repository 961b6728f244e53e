"""Tests of the pages in docs/adr/: their form, and their index."""

from __future__ import annotations

import re

import pytest

from tests.support.markdown import Page
from tests.support.paths import DOCS

DECISIONS = sorted((DOCS / "adr").glob("[0-9]*.md"))
STATUS = re.compile(r"^\*\*Status:\*\* (Accepted|Superseded), (\d{4}-\d{2}-\d{2})\.", re.MULTILINE)


@pytest.mark.parametrize("number", range(1, len(DECISIONS) + 1))
def test_decision_has_number_status_and_three_sections(number: int) -> None:
    page = Page(DECISIONS[number - 1])
    assert page.path.name.startswith(f"{number:04d}-")
    assert page.text.startswith(f"# {number}. ")
    assert STATUS.search(page.text)
    assert list(page.sections) == ["Context", "Decision", "Consequences"]


def test_index_lists_every_decision_with_its_title_and_status() -> None:
    rows = [line for line in Page(DOCS / "adr/README.md").text.splitlines() if "](0" in line]
    expected = []
    for path in DECISIONS:
        text = path.read_text(encoding="utf-8")
        title = text.splitlines()[0].removeprefix("# ")
        status = STATUS.search(text)
        assert status is not None
        expected.append(f"| [{title}]({path.name}) | {status[1]}, {status[2]} |")
    assert rows == expected
