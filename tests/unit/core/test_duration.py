from __future__ import annotations

import pytest

from webhook.core.types import format_duration, parse_duration


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("10ms", 10),
        ("1.5s", 1500),
        ("1m30s", 90_000),
        ("1h", 3_600_000),
        ("0.1s", 100),
        ("0.0009s", 0),
        ("1s1s", 2000),
    ],
)
def test_a_duration_reads_as_milliseconds(written: str, milliseconds: int) -> None:
    assert parse_duration(written) == milliseconds


@pytest.mark.parametrize(
    "written",
    ["", "10", "ms", "-1s", "+1s", "1 s", "1S", "1.s", ".5s", "1d", "10us", "10ms\n", "\u0661s",
     "1s" * 17, 10, 1.5, True, None, ["1s"]],
)  # fmt: skip
def test_anything_else_is_refused_in_words(written: object) -> None:
    with pytest.raises(ValueError, match=r"is not a duration: write it as 10ms, 1\.5s or 1m30s"):
        parse_duration(written)


@pytest.mark.parametrize("milliseconds", [0, 1, 10, 500, 999, 1000, 1500, 2000, 60_000])
def test_the_text_of_a_duration_reads_as_the_same_duration(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds


def test_whole_seconds_are_written_as_seconds() -> None:
    assert [format_duration(ms) for ms in (0, 500, 1500, 2000)] == ["0ms", "500ms", "1500ms", "2s"]
