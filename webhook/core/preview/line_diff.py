"""Unified diffs for long texts that differ in a few added lines.

For n lines the time grows with n log n for any text. `difflib` needs at least n² if many lines are
equal. In return the diffs are correct but not always the shortest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_CONTEXT_LINES = 3
_MIN_MATCHING_LINES = 3
"""The number of equal lines that make two places count as the same place."""
_MAX_CANDIDATE_LINES = 8
"""The maximum number of places to which one line is compared. It bounds the time."""


class _Change(NamedTuple):
    """A range of lines in the first text, and the range in the second text that replaces it."""

    old: range
    new: range


def unified_diff(old: Sequence[str], new: Sequence[str], old_title: str, new_title: str) -> str:
    """Return the diff of two texts, or an empty string if they are equal.

    The texts are given as lines without line ends.
    """
    hunks = list(_hunks(_changes(old, new)))
    if not hunks:
        return ""
    lines = [f"--- {old_title}", f"+++ {new_title}"]
    for hunk in hunks:
        start = max(hunk[0].old.start - _CONTEXT_LINES, 0)
        end = min(hunk[-1].old.stop + _CONTEXT_LINES, len(old))
        shift, new_shift = (
            hunk[0].new.start - hunk[0].old.start,
            hunk[-1].new.stop - hunk[-1].old.stop,
        )
        lines.append(f"@@ -{_span(start, end)} +{_span(start + shift, end + new_shift)} @@")
        at = start
        for change in hunk:
            lines += (f" {line}" for line in old[at : change.old.start])
            lines += (f"-{line}" for line in old[change.old.start : change.old.stop])
            lines += (f"+{line}" for line in new[change.new.start : change.new.stop])
            at = change.old.stop
        lines += (f" {line}" for line in old[at:end])
    return "".join(f"{line}\n" for line in lines)


def _span(start: int, end: int) -> str:
    """Return a range of lines as in the header of a hunk: from 1, or from 0 if it is empty."""
    if end - start == 1:
        return f"{start + 1}"
    return f"{start + 1 if end > start else start},{end - start}"


def _hunks(changes: Iterator[_Change]) -> Iterator[list[_Change]]:
    """Yield groups of changes whose context lines would touch."""
    hunk: list[_Change] = []
    for change in changes:
        if hunk and change.old.start - hunk[-1].old.stop > 2 * _CONTEXT_LINES:
            yield hunk
            hunk = []
        hunk.append(change)
    if hunk:
        yield hunk


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[_Change]:
    line_numbers: dict[str, list[int]] = {}
    for number, line in enumerate(new):
        line_numbers.setdefault(line, []).append(number)
    at_old = at_new = 0
    while at_old < len(old) or at_new < len(new):
        if at_old < len(old) and at_new < len(new) and old[at_old] == new[at_new]:
            at_old, at_new = at_old + 1, at_new + 1
            continue
        start_old, start_new = at_old, at_new
        while at_old < len(old):
            found = _find_line(old, at_old, new, at_new, line_numbers)
            if found is not None:
                at_new = found
                break
            at_old += 1
        else:
            at_new = len(new)
        yield _Change(range(start_old, at_old), range(start_new, at_new))


def _find_line(
    old: Sequence[str],
    at_old: int,
    new: Sequence[str],
    at_new: int,
    line_numbers: dict[str, list[int]],
) -> int | None:
    """Return the index in the second text, from `at_new` on, of a line of the first text."""
    known = line_numbers.get(old[at_old], [])
    first = bisect_left(known, at_new)
    if len(known) - first == 1:
        return known[first]
    wanted = old[at_old : at_old + _MIN_MATCHING_LINES]
    return next(
        (
            place
            for place in known[first : first + _MAX_CANDIDATE_LINES]
            if new[place : place + len(wanted)] == wanted
        ),
        None,
    )
