"""Tests that the generated pages and the Makefile match the code."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from docs import defects_page, limits_page
from docs.generate import PAGES, policy_keys, type_adapter
from tests.support.defects import affected
from tests.support.markdown import ALL
from tests.support.paths import DOCS, ROOT
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.policy.model import SettlePolicySpec
from webhook.core.types import StrictModel
from webhook.server.limits import Limits, PreviewLimits, ViewLimits


@pytest.mark.parametrize("name", PAGES)
def test_reference_pages_match_the_code(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run `make docs`"


class Entry(StrictModel):
    name: str = ""


class Lists(StrictModel):
    entries: tuple[Entry, ...] = ()
    perhaps: tuple[Entry, ...] | None = None
    single: Entry | None = None


def test_keys_of_objects_in_lists_are_marked() -> None:
    keys = [(path, kind) for path, kind, *_ in policy_keys(Lists, "")]
    assert keys == [
        ("entries", "list"),
        ("entries[].name", "string"),
        ("perhaps", "list"),
        ("perhaps[].name", "string"),
        ("single", "mapping"),
        ("single.name", "string"),
    ]


VALUES = {"boolean": True, "list": [], "mapping": {}, "string": "x", "whole number": 1}
"""A value of each type."""


def error_types(field: FieldInfo, value: object) -> set[str]:
    """Return the types of the errors of a value, without those of keys and items in it."""
    try:
        type_adapter(field).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        return {each["type"] for each in error.errors() if not each["loc"]}
    return set()


@pytest.mark.parametrize(
    ("kind", "field"),
    [pytest.param(kind, field, id=path) for path, kind, field in policy_keys(SettlePolicySpec, "")],
)
def test_policy_key_takes_what_the_page_says_and_no_other_type(kind: str, field: FieldInfo) -> None:
    bound = re.fullmatch("duration, at most `(.+)`", kind)
    if bound:
        assert not error_types(field, bound[1])
        assert error_types(field, f"{bound[1]}1ms")
        return
    if "`" in kind:
        for choice in re.findall("`([^`]+)`", kind):
            assert not error_types(field, choice)
        assert error_types(field, "Other")
        return
    errors = {name: str(error_types(field, value)) for name, value in VALUES.items()}
    types = {name for name, error in errors.items() if "_type" not in error}
    assert types == {kind}


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"(?:`|^\$ |^)make ([a-z-]+)", text, re.MULTILINE)) <= targets


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    public = set(re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE))
    described = set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    assert public == described


@pytest.mark.parametrize(
    "page",
    [page for page in ALL if page.name not in ("CHANGELOG.md", "defects.md")],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_no_page_lists_the_releases_of_a_defect_outside_a_region(page: Path) -> None:
    """Such a list would stay as it is when the catalogue changes."""
    text = " ".join(defects_page.REGION.sub("", page.read_text(encoding="utf-8")).split())
    for defect in DEFECTS:
        for entry in defect.affected:
            if len(entry.fixed) > 1:
                assert defects_page.affected_releases(entry) not in text
                assert ", ".join(str(fix.release) for fix in entry.fixed) not in text


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
    assert defects_page.affected_releases(affected(*fixed, **keys)) == words


def test_region_of_a_page_is_filled_and_keeps_its_line_breaks() -> None:
    begin, end = "<!-- fixed cri-o-9840 -->", "<!-- end -->"
    words = "CRI-O 1.33.13, 1.34.9, 1.35.3, 1.36.0 or later"
    assert defects_page.fill_regions(f"x {begin}old{end} y") == f"x {begin}{words}{end} y"
    broken = f"x {begin}CRI-O 1.33.13,\n  1.34.9, 1.35.3, 1.36.0 or later{end} y"
    assert defects_page.fill_regions(broken) == broken
    with pytest.raises(KeyError):
        defects_page.fill_regions(f"<!-- fixed no-such-defect -->x{end}")


def test_table_of_limits_has_every_limit_of_the_server() -> None:
    limits = {each.name for each in fields(Limits)} - {"preview", "view"}
    limits |= {f"preview_{each.name}" for each in fields(PreviewLimits)}
    limits |= {f"view_{each.name}" for each in fields(ViewLimits)}
    assert limits <= limits_page.used_names()
