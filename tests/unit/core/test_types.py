"""Tests of durations and of globs on container names."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.complexity import grows_linearly
from tests.support.factories import policy
from webhook.core.durations import format_duration, parse_duration
from webhook.core.globs import compile_globs, glob_matches
from webhook.core.policy.validation_errors import InvalidPolicyError


@pytest.mark.parametrize("glob", ["", "UPPER", "a.b", "a b", "[ab]", "a" * 64, "a\n", "é"])
def test_a_glob_that_can_match_no_container_name_is_refused(glob: str) -> None:
    with pytest.raises(InvalidPolicyError, match="can match no container name"):
        policy(remedies={"postInitSleep": {"initContainers": [glob]}})


def test_list_of_more_than_50_globs_is_refused() -> None:
    names = [f"a{number}" for number in range(51)]
    for remedy in ("postInitSleep", "openFiles", "retryInitExit255"):
        others = {"soft": 1024} if remedy == "openFiles" else {}
        policy(remedies={remedy: {**others, "initContainers": names[1:]}})
        with pytest.raises(InvalidPolicyError, match="51 entries; it takes at most 50"):
            policy(remedies={remedy: {**others, "initContainers": names}})


@pytest.mark.parametrize("glob", ["*", "?*", "a*", "*a*", "a" * 63])
def test_a_name_longer_than_63_characters_matches_no_glob(glob: str) -> None:
    wanted = compile_globs((glob,))
    assert wanted("a" * 63)
    assert not wanted("a" * 64)


GLOBS = st.text("ab*?", max_size=8)


@example(["?*"], "")
@example(["a*a"], "a")
@example(["a*b*c"], "ac")
@example(["?"], "")
@example(["b", "?"], "b")
@given(st.lists(GLOBS, max_size=3), st.text("ab\n", max_size=8))
def test_globs_match_as_fnmatch_does(globs: list[str], name: str) -> None:
    assert compile_globs(tuple(globs))(name) is any(fnmatchcase(name, glob) for glob in globs)


@pytest.mark.parametrize("glob", ["*a*b", "*a*a*a*a*a*b", "*" * 60 + "b"])
def test_matching_time_is_linear_in_the_text(glob: str) -> None:
    assert grows_linearly("a".__mul__, lambda text: glob_matches(glob, text))


def test_matching_time_is_linear_in_the_glob() -> None:
    assert grows_linearly(
        lambda size: ("*a" * size + "*b", "a" * 2 * size), lambda pair: glob_matches(*pair)
    )


def test_a_duration_is_parsed_to_milliseconds() -> None:
    cases: list[tuple[str, int]] = [
        ("0", 0),
        ("0s", 0),
        ("10ms", 10),
        ("1.5s", 1500),
        ("1m30s", 90_000),
        ("1h", 3_600_000),
        ("0.1s", 100),
        ("0.0009s", 0),
        ("1s1s", 2000),
    ]
    assert [(written, parse_duration(written)) for written, _ in cases] == cases


@pytest.mark.parametrize(
    "written",
    ["", "10", "ms", "-1s", "+1s", "1 s", "1S", "1.s", ".5s", "1d", "10us", "10ms\n", "\u0661s",
     "1s" * 17, 10, 1.5, True, None, ["1s"]],
)  # fmt: skip
def test_a_malformed_duration_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(ValueError, match=r"is not a duration: write it as 10ms, 1\.5s or 1m30s"):
        parse_duration(written)


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(0, "0ms"), (500, "500ms"), (1500, "1500ms"), (60_000, "60s")]
)
def test_a_formatted_duration_is_parsed_to_the_same_duration(milliseconds: int, text: str) -> None:
    assert format_duration(milliseconds) == text
    assert parse_duration(text) == milliseconds
