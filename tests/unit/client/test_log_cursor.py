"""Tests of the log cursor, with logs that are cut into streams and chunks at any byte."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.fake_kubelet import Record, read_logs, stamp
from webhook.client.log_cursor import LogCursor

T = 1_780_000_000_000_000_000
MS = 1_000_000
SECOND = 1000 * MS

texts = st.binary(max_size=6).map(lambda text: text.replace(b"\n", b""))
gaps = st.sampled_from([0, 1, 300 * MS, 700 * MS, 999 * MS, SECOND, 3 * SECOND])
parts = st.lists(st.tuples(gaps, texts), min_size=1, max_size=3)


@st.composite
def files(draw: Any) -> list[Record]:
    """Generate log files: equal timestamps, long lines in parts, lines slightly out of order.

    Text may begin like a timestamp, except in a later part of a line: there a stream that begins
    with this part cannot distinguish the two.
    """
    records: list[Record] = []
    at = T
    for line in draw(st.lists(parts, max_size=12)):
        early = draw(st.sampled_from([0, 0, 1, 900 * MS])) if len(line) == 1 else 0
        for gap, text in line:
            at += gap
            # An empty part would be followed directly by a timestamp.
            records.append(Record(at - early, text or b"-", partial=True))
        begin = len(records) - len(line)
        like_a_stamp = stamp(T) if draw(st.booleans()) else b""
        records[begin] = records[begin]._replace(text=like_a_stamp + records[begin].text)
        last = records[-1]
        records[-1] = last._replace(partial=False, text=last.text.removesuffix(b"-"))
    if records and draw(st.booleans()):
        records[-1] = records[-1]._replace(partial=True, text=records[-1].text or b"-")
    return records


def stream(records: list[Record], since: str | None) -> bytes:
    """Return what the kubelet sends for `since`, which has a resolution of one second."""
    begin = int(datetime.fromisoformat(since).timestamp()) * SECOND if since else 0
    return b"".join(read_logs(records, begin, stamps=True))


def plain(records: list[Record]) -> bytes:
    return b"".join(read_logs(records, 0, stamps=False))


def read(cursor: LogCursor, sent: bytes, size: int) -> bytes:
    """Return the new bytes of one stream that arrives in chunks of this size."""
    cursor.rewind()
    chunks = [sent[at : at + size] for at in range(0, len(sent), size)]
    return b"".join(map(cursor.feed, chunks))


breaks = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 400), st.integers(1, 50)), max_size=6
)


@given(files(), breaks)
@example([Record(T, b"a"), Record(T, b"a"), Record(T, b"a")], [(2, 400, 9), (3, 400, 50)])
def test_each_byte_is_delivered_once_however_streams_break(
    records: list[Record], broken: list[tuple[int, int, int]]
) -> None:
    cursor = LogCursor()
    got = b""
    present = 0
    for written, length, size in broken:
        present = max(present, min(written, len(records)))
        got += read(cursor, stream(records[:present], cursor.since)[:length], size)
    got += read(cursor, stream(records, cursor.since), 1000)
    assert got == plain(records)
    assert read(cursor, stream(records, cursor.since), 1000) == b""


@given(files(), st.integers(0, 400), st.integers(1, 50))
def test_timestamps_are_kept_on_request(records: list[Record], length: int, size: int) -> None:
    cursor = LogCursor(keep_timestamps=True)
    got = read(cursor, stream(records, None)[:length], size)
    got += read(cursor, stream(records, cursor.since), size)
    assert got == stream(records, None)


@given(
    st.text("a\n 2-", max_size=200).map(str.encode),
    st.lists(st.integers(0, 200), max_size=4),
    st.integers(1, 50),
)
def test_log_without_timestamps_is_read_from_the_start_each_time(
    log: bytes, broken: list[int], size: int
) -> None:
    cursor = LogCursor()
    got = b"".join(read(cursor, log[:length], size) for length in broken)
    assert cursor.since is None
    assert got + read(cursor, log + b"\n", size) == log + b"\n"


def test_invalid_timestamp_is_delivered_as_text() -> None:
    cursor = LogCursor()
    assert read(cursor, b"2026-13-45T99:00:00Z text\n", 99) == b"2026-13-45T99:00:00Z text\n"


@pytest.mark.parametrize(
    ("sent", "since"),
    [
        (b"2026-05-30T10:00:05.000000001Z a\n", "2026-05-30T10:00:04Z"),
        (b"2026-05-30T12:00:05.5+02:00 a\n", "2026-05-30T10:00:04Z"),
        # After the clock was set back, the next stream must include the newer lines.
        (
            b"2026-05-30T10:00:05.0Z a\n2026-05-30T09:00:00.0Z b\n",
            "2026-05-30T09:00:00Z",
        ),
    ],
)
def test_next_stream_begins_early_enough_to_miss_no_line(sent: bytes, since: str) -> None:
    cursor = LogCursor()
    read(cursor, sent, 99)
    assert cursor.since == since


def test_memory_of_the_cursor_is_bounded() -> None:
    cursor = LogCursor()
    for second in range(100):
        lines = [Record(T + second * SECOND + n, b"") for n in range(10)]
        read(cursor, stream(lines, None), 9999)
    assert len(cursor.record_counts) <= 30
