"""A cursor in a log, which skips the bytes that a resumed stream repeats.

The kubelet (`k8s.io/cri-client/pkg/logs`) puts a timestamp with nanoseconds in front of each
line. A request with `sinceTime` returns all lines from this time on, and the API server
rounds the time down to a second (`LogLocation` in kubernetes `pkg/registry/core/pod`). A resumed
stream therefore repeats the newest lines. The cursor may have read only a part of the last line.

The cursor identifies a line by its timestamp and by its number among the lines with this timestamp.
It keeps no text, so lines may have any length and any bytes.
"""

from __future__ import annotations

import re
from calendar import timegm
from datetime import UTC, datetime
from functools import lru_cache

_TIMESTAMP = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ", re.ASCII
)
# The longest timestamps in UTC and in another time zone. The digits of these examples complete
# a partial timestamp, to test whether it can become a whole one.
_EXAMPLES = (b"2006-01-02T15:04:05.000000000Z ", b"2006-01-02T15:04:05.000000000+07:00 ")
_EXAMPLE_ENDINGS = {example[i:] for example in _EXAMPLES for i in range(1, len(example))}
_MAX_TIMESTAMP_BYTES = max(map(len, _EXAMPLES))
_NANOSECONDS_PER_SECOND = 1_000_000_000


class LogCursor:
    """The position up to which a log has been read.

    A record begins with a timestamp and ends before the next timestamp. If the server sends no
    timestamps, the whole log is one record, and the cursor counts the bytes of this record.
    """

    def __init__(self, *, keep_timestamps: bool = False, from_first: bool = False) -> None:
        """With `from_first`, skip lines that are older than the first line that was read.

        The first stream then begins within the log, and a resumed stream repeats older lines.
        """
        self._keep_timestamps = keep_timestamps
        self._from_first = from_first
        self._first_moment: int | None = None
        self.record_counts: dict[int, int] = {}
        """The number of records read for each timestamp, in nanoseconds since 1970. Timestamps that
        a resumed stream cannot repeat are removed."""
        # Timestamps in nanoseconds since 1970. If the clock was set back, the last record is not
        # the newest one.
        self._last_moment: int | None = None
        self._newest_moment = 0
        # The number of bytes of the last record that `feed` has returned.
        self._delivered_bytes = 0
        # The attributes below describe the current stream only.
        self._stream_record_counts: dict[int, int] = {}
        self._partial_timestamp = b""
        self._at_line_start = True
        self._bytes_to_skip = 0
        self._skips_record = False
        self.rewind()

    @property
    def since(self) -> str | None:
        """The `sinceTime` of the next request, in RFC 3339, or None to request the whole log.

        The time is one second earlier than the newest line. A runtime takes the timestamp before
        it writes the line, so lines of stdout and stderr may be out of order in the file.

        Two cases are not handled. If the node's clock is set back, the kubelet does not send lines
        with earlier timestamps. If a stream begins within a long line, the cursor takes the next
        timestamp for text of this line.
        """
        if self._last_moment is None:
            return None
        start = datetime.fromtimestamp(self._window_start // _NANOSECONDS_PER_SECOND, UTC)
        return f"{start:%Y-%m-%dT%H:%M:%SZ}"

    def rewind(self) -> None:
        """Prepare for a new stream that begins at `since`."""
        self._partial_timestamp = b""
        self._at_line_start = True
        self._stream_record_counts.clear()
        # Bytes before the first timestamp are the rest of a line that began before `since`. If the
        # log has no timestamps, these bytes are the log itself.
        self._skips_record = self._last_moment is not None
        self._bytes_to_skip = self._delivered_bytes

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes of a chunk that no earlier stream has delivered."""
        data = self._partial_timestamp + chunk if self._partial_timestamp else chunk
        new: list[bytes] = []
        position = 0
        while position < len(data):
            if self._at_line_start:
                timestamp = _TIMESTAMP.match(data, position)
                moment = _parse_nanoseconds(timestamp) if timestamp else None
                if timestamp and moment is not None:
                    self._begin_record(moment)
                    if self._keep_timestamps:
                        self._append_new_bytes(timestamp[0], new)
                    position = timestamp.end()
                elif _may_become_timestamp(data, position):
                    break
                self._at_line_start = False
                continue
            end = data.find(b"\n", position) + 1
            self._at_line_start = end > 0
            end = end or len(data)
            self._append_new_bytes(data[position:end], new)
            position = end
        self._partial_timestamp = data[position:]
        return b"".join(new)

    @property
    def _window_start(self) -> int:
        """The first nanosecond whose records a resumed stream may repeat."""
        last = self._newest_moment if self._last_moment is None else self._last_moment
        # If the clock was set back, `last` is smaller than the newest moment. The earlier start
        # repeats lines, and the later one would lose lines.
        return (
            min(
                (self._newest_moment // _NANOSECONDS_PER_SECOND - 1),
                last // _NANOSECONDS_PER_SECOND,
            )
            * _NANOSECONDS_PER_SECOND
        )

    def _begin_record(self, moment: int) -> None:
        """Decide whether to deliver, continue or skip the record that begins at a timestamp."""
        if self._first_moment is None:
            self._first_moment = moment
        if self._from_first and moment < self._first_moment:
            self._skips_record = True
            return
        number = self._stream_record_counts[moment] = self._stream_record_counts.get(moment, 0) + 1
        read_before = self.record_counts.get(moment, 0)
        if number > read_before:
            self._skips_record, self._bytes_to_skip = False, 0
            self.record_counts[moment] = number
            self._last_moment, self._delivered_bytes = moment, 0
            if moment // _NANOSECONDS_PER_SECOND > self._newest_moment // _NANOSECONDS_PER_SECOND:
                self._newest_moment = moment
                self._drop_old_counts()
            self._newest_moment = max(moment, self._newest_moment)
        elif moment == self._last_moment and number == read_before:
            self._skips_record, self._bytes_to_skip = False, self._delivered_bytes
        else:
            self._skips_record = True

    def _append_new_bytes(self, piece: bytes, new: list[bytes]) -> None:
        """Append the bytes of a piece to `new`, except bytes that were delivered before."""
        if self._skips_record:
            return
        if self._bytes_to_skip:
            skipped = min(self._bytes_to_skip, len(piece))
            self._bytes_to_skip -= skipped
            piece = piece[skipped:]
        if piece:
            self._delivered_bytes += len(piece)
            new.append(piece)

    def _drop_old_counts(self) -> None:
        """Remove the counts of timestamps that a resumed stream cannot repeat."""
        start = self._window_start
        for counts in (self.record_counts, self._stream_record_counts):
            for moment in [moment for moment in counts if moment < start]:
                del counts[moment]


def _parse_nanoseconds(timestamp: re.Match[bytes]) -> int | None:
    """Return the nanoseconds since 1970, or None if the digits are not a valid time."""
    date, fraction, zone = timestamp.groups()
    try:
        seconds = _parse_seconds(date + zone)
    except ValueError:
        return None
    return seconds * _NANOSECONDS_PER_SECOND + int((fraction or b"").ljust(9, b"0"))


@lru_cache(maxsize=64)
def _parse_seconds(text: bytes) -> int:
    """Return the seconds since 1970. Lines of one second share the cached result."""
    return timegm(datetime.fromisoformat(text.decode()).utctimetuple())


def _may_become_timestamp(data: bytes, start: int) -> bool:
    """Return whether the data from `start` on is the beginning of a possible timestamp."""
    part = data[start : start + _MAX_TIMESTAMP_BYTES]
    if len(part) >= _MAX_TIMESTAMP_BYTES:
        return False
    return any(_TIMESTAMP.fullmatch(part + ending) for ending in _EXAMPLE_ENDINGS)
