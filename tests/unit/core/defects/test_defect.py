"""Tests of the model of a defect: which releases are affected, fixed and unverified."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.defects import affected, defect, entry, software
from webhook.core.defects.defect import Affected, DefectStatus
from webhook.core.defects.versions import Version, parse_version

AFFECTED, FIXED, UNVERIFIED = (
    DefectStatus.AFFECTED,
    DefectStatus.NOT_AFFECTED,
    DefectStatus.UNVERIFIED,
)


def status(releases: Affected, release: str) -> DefectStatus:
    return releases.status_of(parse_version(release))


def test_defect_without_a_fix_affects_every_release_since_the_first() -> None:
    cases: list[tuple[str, DefectStatus]] = [
        ("1.36.9", FIXED),
        ("1.37.0-rc.1", FIXED),
        ("1.37.0", AFFECTED),
        ("3.0.0", AFFECTED),
        ("", AFFECTED),
    ]
    assert [(release, status(affected(since="1.37.0"), release)) for release, _ in cases] == cases


def test_defect_without_a_fix_but_with_a_newest_release_leaves_later_lines_unverified() -> None:
    known = affected(since="1.35.0", newest="1.36.0")
    assert [status(known, release) for release in ("1.34.9", "1.36.9", "1.37.0")] == [
        FIXED,
        AFFECTED,
        UNVERIFIED,
    ]


releases = st.builds(
    Version, st.integers(0, 2), st.integers(0, 9), st.integers(0, 9), st.booleans()
)


@given(
    version=releases,
    patches=st.dictionaries(st.integers(1, 7), st.integers(0, 8), min_size=1, max_size=5),
    beyond=st.integers(0, 2),
)
def test_later_releases_of_a_fixed_line_keep_the_fix(
    version: Version, patches: dict[int, int], beyond: int
) -> None:
    """The rule in other words: affected is what sorts before the fix of its line, or before the
    last fix where its line has none."""
    fixes = {minor: Version(1, minor, patch) for minor, patch in patches.items()}
    newest = Version(1, max(fixes) + beyond)
    known = affected(*(str(fixes[minor]) for minor in sorted(fixes)), newest=str(newest))
    own = fixes.get(version.minor) if version.major == 1 else None
    if version[:2] > newest[:2]:
        expected = UNVERIFIED
    elif own is not None:
        expected = AFFECTED if version < own else FIXED
    else:
        expected = AFFECTED if version < fixes[max(fixes)] else FIXED
    assert known.status_of(version) is expected


@pytest.mark.parametrize(
    ("keys", "at", "message"),
    [
        ({"fixed": ["1.34.9", "1.33.13"], "newest": "1.36.0"}, "fixed", "ascending order"),
        ({"fixed": ["1.33.13", "1.33.14"], "newest": "1.36.0"}, "fixed", "ascending order"),
        ({"fixed": ["1.33.13"]}, "newest", "is missing beside fixed releases"),
        ({"fixed": ["1.33.13"], "newest": "1.32.0"}, "newest", "of an older line"),
        ({"since": "1.37.0", "newest": "1.36.0"}, "newest", "of an older line"),
        (
            {"fixed": ["1.33.13"], "newest": "1.36.0", "since": "1.33.13"},
            "since",
            "is not older than the first fixed release",
        ),
    ],
)
def test_releases_that_contradict_each_other_are_refused(
    keys: dict[str, Any], at: str, message: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        affected(*keys.pop("fixed", ()), **keys)
    (error,) = caught.value.errors()
    assert error["ctx"]["at"] == (at,)
    assert message in error["msg"]


@pytest.mark.parametrize(
    "release", ["1.33", "v1.33.1", "1.33.1-rc.1", "1.33.x", "", 1.33, None, "1." + "9" * 20 + ".0"]
)
def test_release_needs_three_numbers(release: object) -> None:
    with pytest.raises(ValidationError, match="is not a release: write it with three numbers"):
        Affected.model_validate(
            {"component": "cri-o", "fixed": [{"release": release, "link": "h"}]}
        )


@pytest.mark.parametrize(
    ("runtime", "kubelet", "expected"),
    [
        ("cri-o://1.33.0", "v1.36.9", AFFECTED),
        ("cri-o://1.33.0", "v1.37.0-rc.1", AFFECTED),
        ("cri-o://1.33.0", "", AFFECTED),
        ("cri-o://1.33.0", "v1.37.0", DefectStatus.PARTLY_AFFECTED),
        ("cri-o://1.36.0", "v1.37.0", FIXED),
        ("containerd://2.1.0", "v1.37.0", FIXED),
    ],
)
def test_newer_kubelet_makes_an_affected_runtime_partly_affected(
    runtime: str, kubelet: str, expected: DefectStatus
) -> None:
    found = defect(entry("1.36.0", newest="1.36.0"), partly=PARTLY)
    assert found.status_on(*software(runtime, kubelet)) is expected
    assert expected.needs_remedy is (expected is not FIXED)


PARTLY = {
    "kubelet": "1.37.0",
    "reason": "VolumesNotSeen",
    "message": "some volumes are slow",
    "link": "https://example.org/1",
}


def test_defect_can_end_if_a_release_or_a_runtime_is_free_of_it() -> None:
    cases: list[tuple[list[dict[str, Any]], bool]] = [
        ([entry("1.36.0", newest="1.36.0")], True),
        ([entry()], True),  # Other runtimes do not have it.
        ([entry(component="any runtime")], False),
        ([entry(component="any runtime"), entry("1.36.0", newest="1.36.0")], True),
        ([entry(component="kubelet")], False),
        ([entry(component="kubelet", since="1.37.0")], False),
        ([entry("1.38.0", component="kubelet", newest="1.38.0")], True),
    ]
    assert [(entries, defect(*entries).can_end) for entries, _ in cases] == cases


@pytest.mark.parametrize(
    ("entries", "keys", "at", "message"),
    [
        ([entry(), entry()], {}, "affected", "lists a component twice"),
        ([entry()], {"component": "kubelet"}, "component", "kubelet is not listed"),
        ([entry(), entry(component="kubelet")], {}, "affected", "no other component"),
        ([entry(component="kubelet")], {"partly": PARTLY}, "affected", "no partly"),
    ],
)
def test_components_that_contradict_each_other_are_refused(
    entries: list[dict[str, Any]], keys: dict[str, Any], at: str, message: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        defect(*entries, **keys)
    (error,) = caught.value.errors()
    assert error["ctx"]["at"] == (at,)
    assert message in error["msg"]


@pytest.mark.parametrize(
    ("runtime", "cure"),
    [
        ("cri-o://1.20.7", "1.33.13"),
        ("cri-o://1.33.12", "1.33.13"),
        ("cri-o://1.33.13-rc.1", "1.33.13"),
        ("cri-o://1.34.0", "1.35.3"),  # The line has no fix, the next one has.
        ("cri-o://1.35.2", "1.35.3"),
        ("cri-o://broken", "1.35.3"),
        ("cri-o://1.33.13", None),
        ("cri-o://1.36.0", None),
        ("cri-o://1.99.0", None),
        ("containerd://2.0.0", None),
    ],
)
def test_affected_node_is_cured_by_the_first_fix_of_its_line_or_a_later_one(
    runtime: str, cure: str | None
) -> None:
    found = defect(entry("1.33.13", "1.35.3", newest="1.37.2")).cure_for(*software(runtime))
    assert found == (parse_version(cure) if cure else None)


def test_node_with_a_defect_that_no_release_fixes_has_no_cure() -> None:
    assert defect(entry()).cure_for(*software("cri-o://1.33.12")) is None
    of_kubelet = defect(entry("1.36.4", component="kubelet", newest="1.37.0"))
    assert of_kubelet.cure_for(*software("cri-o://1.33.12", "v1.36.1")) == Version(1, 36, 4)
    assert of_kubelet.cure_for(*software("cri-o://1.33.12", "broken")) == Version(1, 36, 4)
    assert defect(entry(component="kubelet")).cure_for(*software("cri-o://1.33.12")) is None
