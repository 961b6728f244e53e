"""A cursor in a log, which skips the bytes that a resumed stream repeats.

The kubelet (`k8s.io/cri-client/pkg/logs`) puts a timestamp with nanoseconds in front of each
line. A request for the log since a time returns all lines from that time on, and the API server
rounds the time down to a second (`LogLocation` in kubernetes `pkg/registry/core/pod`). A resumed
stream therefore repeats the newest lines. The last of these may have been read only in part.

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
_EXAMPLES = (b"2006-01-02T15:04:05.000000000Z ", b"2006-01-02T15:04:05.000000000+07:00 ")
_TIMESTAMP_ENDINGS = {example[i:] for example in _EXAMPLES for i in range(1, len(example))}
_MAX_TIMESTAMP_BYTES = max(map(len, _EXAMPLES))
_NANOSECONDS = 1_000_000_000


class LogCursor:
    """The position up to which a log has been read.

    A record begins with a timestamp and ends before the next one. A server without timestamps sends
    a single record; the cursor then counts its bytes.
    """

    def __init__(self, *, keep_timestamps: bool = False) -> None:
        self._keep_timestamps = keep_timestamps
        self.record_counts: dict[int, int] = {}
        """The number of records read at each nanosecond that a resumed stream may repeat."""
        self._last: int | None = None
        self._newest = 0
        self._delivered = 0
        # The state of the present stream:
        self._stream_counts: dict[int, int] = {}
        self._held = b""
        self._at_line_start = True
        self._skip = 0
        self._dropping = False
        self.rewind()

    @property
    def since(self) -> str | None:
        """The time to request the log from, in RFC 3339, or None to request all of it.

        It is one second earlier than the newest line. A runtime takes the timestamp before it
        writes the line, so lines of stdout and stderr may be out of order in the file.

        Two cases are not handled. If a clock is set back, lines with earlier timestamps are never
        sent. If a stream begins within a long line, the next timestamp is taken for its text.
        """
        if self._last is None:
            return None
        start = datetime.fromtimestamp(self._window_start // _NANOSECONDS, UTC)
        return f"{start:%Y-%m-%dT%H:%M:%SZ}"

    def rewind(self) -> None:
        """Prepare for a new stream that begins at `since`."""
        self._held = b""
        self._at_line_start = True
        self._stream_counts.clear()
        # Bytes before the first timestamp are the rest of a line that began before `since`. If no
        # timestamp was ever seen, they are the whole log.
        self._dropping = self._last is not None
        self._skip = self._delivered

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes of a chunk that were not read before."""
        data = self._held + chunk if self._held else chunk
        new: list[bytes] = []
        at = 0
        while at < len(data):
            if self._at_line_start:
                timestamp = _TIMESTAMP.match(data, at)
                moment = _nanoseconds(timestamp) if timestamp else None
                if timestamp and moment is not None:
                    self._begin_record(moment)
                    if self._keep_timestamps:
                        self._deliver(timestamp[0], new)
                    at = timestamp.end()
                elif _may_become_timestamp(data, at):
                    break
                self._at_line_start = False
                continue
            end = data.find(b"\n", at) + 1
            self._at_line_start = end > 0
            end = end or len(data)
            self._deliver(data[at:end], new)
            at = end
        self._held = data[at:]
        return b"".join(new)

    @property
    def _window_start(self) -> int:
        """The first nanosecond whose records a resumed stream may repeat."""
        last = self._newest if self._last is None else self._last
        # `last` is smaller if the clock was set back. Repeating lines is better than losing them.
        return min((self._newest // _NANOSECONDS - 1), last // _NANOSECONDS) * _NANOSECONDS

    def _begin_record(self, at: int) -> None:
        number = self._stream_counts[at] = self._stream_counts.get(at, 0) + 1
        known = self.record_counts.get(at, 0)
        if number > known:
            self._dropping, self._skip = False, 0
            self.record_counts[at] = number
            self._last, self._delivered = at, 0
            if at // _NANOSECONDS > self._newest // _NANOSECONDS:
                self._newest = at
                self._drop_old_counts()
            self._newest = max(at, self._newest)
        elif at == self._last and number == known:
            self._dropping, self._skip = False, self._delivered
        else:
            self._dropping = True

    def _deliver(self, piece: bytes, new: list[bytes]) -> None:
        if self._dropping:
            return
        if self._skip:
            known = min(self._skip, len(piece))
            self._skip -= known
            piece = piece[known:]
        if piece:
            self._delivered += len(piece)
            new.append(piece)

    def _drop_old_counts(self) -> None:
        start = self._window_start
        for counts in (self.record_counts, self._stream_counts):
            for at in [at for at in counts if at < start]:
                del counts[at]


def _nanoseconds(timestamp: re.Match[bytes]) -> int | None:
    date, fraction, zone = timestamp.groups()
    try:
        seconds = _seconds(date + zone)
    except ValueError:  # Digits that are not a time.
        return None
    return seconds * _NANOSECONDS + int((fraction or b"").ljust(9, b"0"))


@lru_cache(maxsize=64)
def _seconds(text: bytes) -> int:
    return timegm(datetime.fromisoformat(text.decode()).utctimetuple())


def _may_become_timestamp(data: bytes, at: int) -> bool:
    """Return whether the data ends within what may be a timestamp."""
    part = data[at : at + _MAX_TIMESTAMP_BYTES]
    if len(part) >= _MAX_TIMESTAMP_BYTES:
        return False
    return any(_TIMESTAMP.fullmatch(part + ending) for ending in _TIMESTAMP_ENDINGS)
