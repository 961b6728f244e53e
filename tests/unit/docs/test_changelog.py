"""Tests of the form of CHANGELOG.md, from which a release takes its notes."""

from __future__ import annotations

import re

from packaging.version import Version

from tests.support.paths import ROOT
from webhook import __version__

KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def test_changelog_has_the_form_of_keep_a_changelog() -> None:
    title, *sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert title.startswith("# Changelog\n")
    names = [section.partition("\n")[0] for section in sections]
    dated = names[names[:1] == ["Unreleased"] :]
    releases = [re.sub(r" - \d{4}-\d{2}-\d{2}$", "", name) for name in dated]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d{2}-\d{2}", name) for name in dated)
    assert releases == sorted(set(releases), key=Version, reverse=True)
    assert all(Version(release) <= Version(__version__) for release in releases)
    for section in sections:
        _, *parts = re.split(r"^### ", section, flags=re.MULTILINE)
        kinds = [part.partition("\n")[0] for part in parts]
        assert kinds == [kind for kind in KINDS if kind in kinds], section[:20]
        assert all(part.partition("\n")[2].lstrip().startswith("- ") for part in parts)
