"""Tests of findings and of the answer to the question whether a cluster has a symptom."""

from __future__ import annotations

import re
from itertools import product

import pytest

from webhook.inspect.findings import Answer, Area, Looked, verdict


def areas_in(states: tuple[Looked, ...]) -> list[Area]:
    return [
        Area(
            f"area{index}",
            state,
            "" if state is Looked.LOOKED_AT else "a cause",
            "list things" if state is Looked.NOT_LOOKED_AT else "",
        )
        for index, state in enumerate(states)
    ]


@pytest.mark.parametrize("states", [s for n in range(4) for s in product(Looked, repeat=n)])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_the_word_none_appears_only_if_every_area_was_looked_at(
    count: int, states: tuple[Looked, ...]
) -> None:
    answer, text = (result := verdict(count, areas_in(states))).answer, result.text
    complete = bool(states) and set(states) == {Looked.LOOKED_AT}
    says_none = answer is Answer.NONE
    assert says_none == (complete and count == 0)
    assert bool(re.search(r"\bnone\b|\bno \w", text)) == says_none
    if Looked.NOT_LOOKED_AT in states:
        assert "not looked at" in text
        assert "list things" in text
    if count:
        assert answer is Answer.FOUND
        assert text.startswith(f"found {count}")


def test_expired_events_without_findings_are_unknown() -> None:
    events = Area("events", Looked.PARTLY, "the API server keeps them for an hour")
    result = verdict(0, [Area("pods", Looked.LOOKED_AT), events])
    assert result.answer is Answer.UNKNOWN
    limit = "events (the API server keeps them for an hour)"
    assert result.text == f"unknown: nothing was found, but objects may be missing: {limit}"
