"""Tests that pages, Makefile and notices say what the code says."""

from __future__ import annotations

import re
import typing
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from importlib.metadata import metadata
from typing import Any

import msgspec
import pytest

from docs.generate import (
    affected_releases,
    component_name,
    fixed_releases,
    generated,
)
from tests.support.defects import affected
from tests.support.markdown import ALL
from tests.support.paths import CHART, DOCS, ROOT
from tools.kube_versions import MODULES, releases
from webhook import __version__
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.remedies import REMEDIES
from webhook.inspect.scan.model import ScanReport
from webhook.server.limits import DEFAULT_LIMITS


def test_generated_parts_of_pages_match_the_code() -> None:
    differing = [path.name for path, text in generated().items() if path.read_text() != text]
    assert differing == [], "run `make docs`"


def test_every_make_target_that_a_page_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert len(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE)) <= 25
    for page in (page for page in ALL if page.name != "CHANGELOG.md"):
        named = re.findall(r"(?:`|^\$ |^)make ([a-z-]+)", page.read_text(), re.MULTILINE)
        assert set(named) <= targets, page.name


def test_pages_are_short_enough_to_be_read() -> None:
    docs = [page for page in ALL if DOCS in page.parents]
    assert len([page for page in docs if page.parent == DOCS]) <= 35
    read = [*docs, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    size = sum(page.stat().st_size for page in read)
    assert size <= 390_000, f"shorten a page by {size - 390_000} bytes"
    for name, most in (("CONTRIBUTING.md", 10), ("docs/commands.md", 26), ("docs/defects.md", 18)):
        assert (ROOT / name).stat().st_size <= most * 1000, name


@pytest.mark.parametrize(
    ("fixed", "keys", "words"),
    [
        (("1.22.0",), {"newest": "1.36.0"}, "1.21 and older"),
        (("1.33.1", "1.36.0"), {"newest": "1.36.0"}, "1.32 and older, 1.33.0, 1.34, 1.35"),
        (("1.6.1", "2.0.2"), {"newest": "2.1.0"}, "1.5 and older, 1.6.0, 2.0.0 to 2.0.1"),
        (("1.35.2",), {"newest": "1.36.0", "since": "1.33.4"}, "1.33.4 to 1.34, 1.35.0 to 1.35.1"),
        ((), {}, "every release"),
        ((), {"since": "1.37.0"}, "1.37.0 and later"),
        ((), {"since": "1.37.0", "newest": "1.38.2"}, "1.37.0 and later, up to 1.38"),
    ],
)  # fmt: skip
def test_affected_releases_are_written_as_ranges(
    fixed: tuple[str, ...], keys: dict[str, str], words: str
) -> None:
    assert affected_releases(affected(*fixed, **keys)) == words


def test_pages_list_the_releases_of_a_defect_as_the_catalogue_does() -> None:
    entries = [entry for defect in DEFECTS for entry in defect.affected if entry.fixed]
    known = {
        f"{component_name(entry)} {words}"
        for entry in entries
        for words in (affected_releases(entry), fixed_releases(entry))
    }
    number = r"\d+\.\d+(?:\.\d+)?"
    fixed = rf"(?:, {number})+ or later"
    older = rf" and older(?:, {number}(?: to {number})?)+"
    found = [
        (page.name, text)
        for page in ALL
        if page.name not in ("CHANGELOG.md", "defects.md")
        for text in re.findall(
            rf"(?:CRI-O|containerd) {number}(?:{fixed}|{older})", " ".join(page.read_text().split())
        )
    ]
    assert len(found) > 2
    assert [each for each in found if each[1] not in known] == []


def _limits() -> Iterator[str]:
    """Yield the text of each limit, with the unit that its name ends in."""
    of_parts = (DEFAULT_LIMITS.preview, DEFAULT_LIMITS.view, DEFAULT_LIMITS)
    for limits in of_parts:
        for name, value in ((each.name, getattr(limits, each.name)) for each in fields(limits)):
            unit = name.rpartition("_")[2]
            if not isinstance(value, (int, float)):
                continue
            if unit == "bytes":
                yield f"{value / 2**20:g} MiB" if value >= 2**20 else f"{value / 2**10:g} KiB"
            elif unit in ("share", "chance"):
                yield f"{100 * value:g} %"
            else:
                yield f"{value:g} s" if unit == "seconds" else f"{value:,}"


def test_every_limit_of_the_server_is_in_the_table_of_limits() -> None:
    (_, table) = (DOCS / "http.md").read_text().split("| what is limited | limit |")
    text = table.partition("\n\n")[0]
    found = Counter(re.findall(r"(?<![\d.,])\d(?:[\d,.]*\d)?(?: (?:MiB|KiB|s|%)(?!\w))?", text))
    assert Counter(_limits()) - found == Counter()


def _keys(struct: type[msgspec.Struct]) -> Iterator[str]:
    for field in msgspec.structs.fields(struct):
        yield field.encode_name
        waiting: list[Any] = [field.type]
        while waiting:
            annotation = waiting.pop()
            if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
                yield from _keys(annotation)
            waiting += typing.get_args(annotation)


def test_page_of_the_scan_names_every_key_of_its_report() -> None:
    text = (DOCS / "scan.md").read_text()
    assert [key for key in _keys(ScanReport) if f"`{key}`" not in text] == []


def test_page_of_native_policies_says_which_remedies_they_can_have() -> None:
    text = (DOCS / "export.md").read_text()
    for name, remedy in REMEDIES.items():
        assert f"| `{name}` | {'no' if isinstance(remedy.native, str) else 'yes'}" in text


def test_table_of_tested_versions_has_the_releases_that_are_built() -> None:
    page = (DOCS / "kubernetes-versions.md").read_text()
    rows = re.findall(r"^\| (\d\S+) \| (\d\S+) \|", page, re.MULTILINE)
    assert rows == [tuple(releases(module).values()) for module in MODULES.values()]
    (versions,) = re.findall(r"^KUBE_VERSIONS \?= (.+)$", (ROOT / "Makefile").read_text(), re.M)
    assert versions.split() == list(MODULES)


def test_version_in_commands_and_images_is_that_of_the_project() -> None:
    pattern = r"(?:\b(?:podsettle|linger):|\bVERSION=|--version |; # |\btag v)(\d+\.\d+\.\d+)\b"
    for page in (*ALL, ROOT / "Makefile"):
        if page.name != "CHANGELOG.md":
            assert set(re.findall(pattern, page.read_text())) <= {__version__}, page.name


def test_chart_and_helper_have_the_version_of_the_project() -> None:
    chart = (CHART / "Chart.yaml").read_text()
    assert re.findall(r"^(?:version|appVersion): (.+)$", chart, re.M) == [__version__] * 2
    header = (ROOT / "webhook/linger/src/linger.h").read_text()
    assert f'#define LINGER_VERSION "{__version__}"' in header


def licence_of(package: str) -> str:
    """Return the name of a package's licence from its metadata."""
    found = metadata(package)
    texts = [*found.get_all("License-Expression", []), *found.get_all("License", [])]
    classifiers = [text for text in found.get_all("Classifier", []) if text.startswith("License ")]
    short = [text for text in texts if 0 < len(text) <= 60]  # A longer one is the licence itself.
    return short[0] if short else ", ".join(text.split(" :: ")[-1] for text in classifiers)


def test_notices_list_the_locked_packages_with_their_licences() -> None:
    locked = (ROOT / "requirements/run.txt").read_text()
    packages = re.findall(r"^([\w.-]+)==(\S+)", locked, re.MULTILINE)
    lines = [f"{f'{name} {version}':<30} {licence_of(name)}" for name, version in packages]
    assert "\n".join(lines) in (ROOT / "THIRD_PARTY_NOTICES").read_text()
