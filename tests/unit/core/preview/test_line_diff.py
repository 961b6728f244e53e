"""Tests that diffs are correct, short for added lines, and fast."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.complexity import grows_linearly
from webhook.core.preview.line_diff import unified_diff

LINES = st.lists(st.sampled_from(["a", "b", "c", "", "-d", "+e", " f"]), max_size=30)


def diff(old: list[str], new: list[str]) -> list[str]:
    return unified_diff(old, new, "one", "other").splitlines()


def applied(old: list[str], found: list[str]) -> list[str]:
    """Apply a diff to the first text as `patch` does, and check each context line."""
    made: list[str] = []
    at = 0
    for line in found[2:]:
        if line.startswith("@@"):
            span, new_span = (part[1:].split(",") for part in line.split()[1:3])
            count = int(span[1]) if len(span) == 2 else 1
            start = int(span[0]) - (1 if count else 0)
            made += old[at:start]
            at = start
            new_count = int(new_span[1]) if len(new_span) == 2 else 1
            assert int(new_span[0]) - (1 if new_count else 0) == len(made)
        elif line[0] == "+":
            made.append(line[1:])
        else:
            assert old[at] == line[1:]
            at += 1
            if line[0] == " ":
                made.append(line[1:])
    return made + old[at:]


@given(LINES, LINES)
def test_applied_diff_turns_the_first_text_into_the_second(old: list[str], new: list[str]) -> None:
    found = diff(old, new)
    assert bool(found) is (old != new)
    assert applied(old, found) == new


NUMBERED = [f"line {number}" for number in range(60)]


@pytest.mark.parametrize(
    "new",
    [
        [*NUMBERED[:10], "x", *NUMBERED[10:]],
        ["x", "y", *NUMBERED],
        [*NUMBERED, "x"],
        [*NUMBERED[:10], "x", *NUMBERED[10:12], "y", *NUMBERED[12:40], "z", *NUMBERED[40:]],
        [*NUMBERED[:10], *NUMBERED[11:]],
        [*NUMBERED[:10], "x", *NUMBERED[11:]],
        NUMBERED[:30],
        [],
        NUMBERED,
    ],
)
def test_diff_of_added_lines_equals_that_of_difflib(new: list[str]) -> None:
    assert diff(NUMBERED, new) == list(
        difflib.unified_diff(NUMBERED, new, "one", "other", lineterm="")
    )


@pytest.mark.parametrize("kinds", [1, 2, 150, 10**9])
@pytest.mark.parametrize("every", [2, 50, 1000])
def test_diff_time_grows_linearly_with_the_lines(kinds: int, every: int) -> None:
    def texts(size: int) -> tuple[list[str], list[str]]:
        old = [str(number % kinds) for number in range(size)]
        new = [
            line
            for n, line in enumerate(old)
            for line in ([line, "x"] if n % every == 0 else [line])
        ]
        return old, new

    assert grows_linearly(texts, lambda pair: diff(*pair))


def test_diff_time_grows_linearly_for_unrelated_texts() -> None:
    assert grows_linearly(lambda size: (["a"] * size, ["b"] * size), lambda pair: diff(*pair))
    assert grows_linearly(
        lambda size: (["a", "b"] * size, ["b", "b", "a", "c"] * size), lambda pair: diff(*pair)
    )
