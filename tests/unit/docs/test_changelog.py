"""Tests of the form of CHANGELOG.md, from which a release takes its notes."""

from __future__ import annotations

import re

import pytest
from packaging.version import Version

from tests.support.paths import ROOT
from webhook import __version__

KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
RELEASE = re.compile(r"(\d+\.\d+\.\d+) - \d{4}-\d{2}-\d{2}")


def problems(text: str, version: str) -> list[str]:
    """What is wrong with a changelog of a checkout that has this version."""
    headings = re.findall(r"^(#{1,3}) (.+)$", text, re.MULTILINE)
    titles = [title for level, title in headings if level == "##"]
    releases = [found[1] for title in titles if (found := RELEASE.fullmatch(title))]
    wrong = []
    if headings[:1] != [("#", "Changelog")]:
        wrong.append("the title is not Changelog")
    if not all(RELEASE.fullmatch(title) for title in titles[titles[:1] == ["Unreleased"] :]):
        wrong.append("a heading is neither Unreleased, as the first, nor VERSION - DATE")
    if releases != sorted(set(releases), key=Version, reverse=True):
        wrong.append("the newest release is not the first")
    if any(Version(release) > Version(version) for release in releases):
        wrong.append("a release is later than the version in pyproject.toml")
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        kinds = re.findall(r"^### (.+)$", section, re.MULTILINE)
        if kinds != [kind for kind in KINDS if kind in kinds]:
            wrong.append(f"{section.splitlines()[0]}: unknown kinds, or not in order: {kinds}")
        parts = re.split(r"^### .+$", section, flags=re.MULTILINE)[1:]
        if not all(part.lstrip().startswith("- ") for part in parts):
            wrong.append(f"{section.splitlines()[0]}: a kind has no list of changes")
    return wrong


def test_changelog_has_the_form_of_keep_a_changelog() -> None:
    assert problems((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), __version__) == []


GOOD = """# Changelog

## Unreleased

### Added

- A thing.

## 0.2.0 - 2026-12-01

### Added

- Another thing.

### Fixed

- A fault.

## 0.1.0 - 2026-11-25

### Added

- All.
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# Changelog", "# Changes"),
        ("## Unreleased", "## Next"),
        ("0.2.0 - 2026-12-01", "0.2.0"),
        ("0.2.0 - 2026-12-01", "0.0.9 - 2026-12-01"),
        ("0.2.0 - 2026-12-01", "0.3.0 - 2026-12-01"),
        ("### Fixed", "### Bugs"),
        ("### Fixed", "### Added"),
        ("- A fault.", ""),
    ],
)
def test_changelog_of_another_form_is_refused(before: str, after: str) -> None:
    assert problems(GOOD, "0.2.0") == []
    assert problems(GOOD.replace(before, after, 1), "0.2.0") != []
