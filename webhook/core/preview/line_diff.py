"""Unified diffs for long texts that differ in a few added lines.

For n lines the time grows with n log n for any text. `difflib` needs at least n² if many lines are
equal. The diffs are correct, but not always the shortest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_CONTEXT_LINES = 3
_MIN_MATCHING_LINES = 3
"""The number of equal lines at which two places in the texts are taken for the same place."""
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
        start_shift, end_shift = (
            hunk[0].new.start - hunk[0].old.start,
            hunk[-1].new.stop - hunk[-1].old.stop,
        )
        lines.append(f"@@ -{_span(start, end)} +{_span(start + start_shift, end + end_shift)} @@")
        old_index = start
        for change in hunk:
            lines += (f" {line}" for line in old[old_index : change.old.start])
            lines += (f"-{line}" for line in old[change.old.start : change.old.stop])
            lines += (f"+{line}" for line in new[change.new.start : change.new.stop])
            old_index = change.old.stop
        lines += (f" {line}" for line in old[old_index:end])
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
    """Yield the ranges of lines in which the texts differ."""
    line_numbers: dict[str, list[int]] = {}
    for number, line in enumerate(new):
        line_numbers.setdefault(line, []).append(number)
    old_index = new_index = 0
    while old_index < len(old) or new_index < len(new):
        if old_index < len(old) and new_index < len(new) and old[old_index] == new[new_index]:
            old_index, new_index = old_index + 1, new_index + 1
            continue
        old_start, new_start = old_index, new_index
        while old_index < len(old):
            found = _find_line(old, old_index, new, new_index, line_numbers)
            if found is not None:
                new_index = found
                break
            old_index += 1
        else:
            new_index = len(new)
        yield _Change(range(old_start, old_index), range(new_start, new_index))


def _find_line(
    old: Sequence[str],
    old_index: int,
    new: Sequence[str],
    new_index: int,
    line_numbers: dict[str, list[int]],
) -> int | None:
    """Return the index in the second text of the line `old[old_index]`, or None.

    Only lines from `new_index` on are searched. `line_numbers` has the indices of each line of the
    second text. If the line occurs several times there, the lines after it must match too.
    """
    occurrences = line_numbers.get(old[old_index], [])
    first = bisect_left(occurrences, new_index)
    if len(occurrences) - first == 1:
        return occurrences[first]
    block = old[old_index : old_index + _MIN_MATCHING_LINES]
    return next(
        (
            place
            for place in occurrences[first : first + _MAX_CANDIDATE_LINES]
            if new[place : place + len(block)] == block
        ),
        None,
    )
