"""How far a log has been read: what a stream that begins anew repeats is left out.

The kubelet (`k8s.io/cri-client/pkg/logs`) stamps each line with nanoseconds, in the order of the
log file. Asked for what is there since a time, it sends all from that time on; the API server cuts
the time down to a second (`LogLocation` in kubernetes `pkg/registry/core/pod`). So what was read
last comes again, and perhaps only a part of it had been read.

Lines are told by their stamps, and among lines with the same stamp by their number. Nothing of them
is kept but that, so a line may be of any length, and of any bytes.
"""

from __future__ import annotations

import re
from calendar import timegm
from datetime import UTC, datetime
from functools import lru_cache

_STAMP = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ", re.ASCII
)
_EXAMPLES = (b"2006-01-02T15:04:05.000000000Z ", b"2006-01-02T15:04:05.000000000+07:00 ")
_RESTS = {example[i:] for example in _EXAMPLES for i in range(1, len(example))}
_LONGEST = max(map(len, _EXAMPLES))
_SECOND = 1_000_000_000


class Position:
    """The place in a log up to which it has been read.

    A record is a line with a stamp and what follows up to the next stamp: a server that does not
    stamp sends one record, and then the number of its bytes tells how far it was read.
    """

    def __init__(self, *, keep_stamps: bool = False) -> None:
        self._keep_stamps = keep_stamps
        # How many records began at each nanosecond, of those that may come again.
        self._begun: dict[int, int] = {}
        self._last: int | None = None
        self._newest = 0
        self._delivered = 0
        # Of the stream that is read now:
        self._again: dict[int, int] = {}
        self._held = b""
        self._at_line_start = True
        self._skip = 0
        self._dropping = False
        self.rewind()

    @property
    def since(self) -> str | None:
        """From when on to ask for the log, as RFC 3339; None for all of it.

        A second earlier than need be: a runtime stamps a line before it writes it, so lines of two
        streams may stand in the file in another order than that of their stamps. What a clock that
        was set back stamps earlier than this is never sent. Where only the first part of a long
        line is, the next stamp stands in the middle of a line and is taken for its text.
        """
        if self._last is None:
            return None
        return f"{datetime.fromtimestamp(self._window // _SECOND, UTC):%Y-%m-%dT%H:%M:%SZ}"

    def rewind(self) -> None:
        """A new stream begins, at `since`."""
        self._held = b""
        self._at_line_start = True
        self._again.clear()
        # What comes before the first stamp is the rest of a line that began before `since`; or
        # it is all there is, where nothing has had a stamp so far.
        self._dropping = self._last is not None
        self._skip = self._delivered

    def feed(self, chunk: bytes) -> bytes:
        """What of a chunk has not been read before, without the stamps."""
        data = self._held + chunk if self._held else chunk
        new: list[bytes] = []
        at = 0
        while at < len(data):
            if self._at_line_start:
                stamp = _STAMP.match(data, at)
                moment = _nanoseconds(stamp) if stamp else None
                if stamp and moment is not None:
                    self._begin(moment)
                    if self._keep_stamps:
                        self._pass(stamp[0], new)
                    at = stamp.end()
                elif _may_become_stamp(data, at):
                    break
                self._at_line_start = False
                continue
            end = data.find(b"\n", at) + 1
            self._at_line_start = end > 0
            end = end or len(data)
            self._pass(data[at:end], new)
            at = end
        self._held = data[at:]
        return b"".join(new)

    @property
    def _window(self) -> int:
        """The nanosecond from which on records may come again."""
        last = self._newest if self._last is None else self._last
        # A clock that was set back makes `last` the smaller one: rather twice than never.
        return min((self._newest // _SECOND - 1), last // _SECOND) * _SECOND

    def _begin(self, at: int) -> None:
        number = self._again[at] = self._again.get(at, 0) + 1
        known = self._begun.get(at, 0)
        if number > known:
            self._dropping, self._skip = False, 0
            self._begun[at] = number
            self._last, self._delivered = at, 0
            if at // _SECOND > self._newest // _SECOND:
                self._newest = at
                self._forget()
            self._newest = max(at, self._newest)
        elif at == self._last and number == known:
            self._dropping, self._skip = False, self._delivered
        else:
            self._dropping = True

    def _pass(self, piece: bytes, new: list[bytes]) -> None:
        if self._dropping:
            return
        if self._skip:
            known = min(self._skip, len(piece))
            self._skip -= known
            piece = piece[known:]
        if piece:
            self._delivered += len(piece)
            new.append(piece)

    def _forget(self) -> None:
        window = self._window
        for counts in (self._begun, self._again):
            for at in [at for at in counts if at < window]:
                del counts[at]


def _nanoseconds(stamp: re.Match[bytes]) -> int | None:
    date, fraction, zone = stamp.groups()
    try:
        seconds = _seconds(date + zone)
    except ValueError:  # Digits that are no time.
        return None
    return seconds * _SECOND + int((fraction or b"").ljust(9, b"0"))


@lru_cache(maxsize=64)
def _seconds(text: bytes) -> int:
    return timegm(datetime.fromisoformat(text.decode()).utctimetuple())


def _may_become_stamp(data: bytes, at: int) -> bool:
    """Whether what is there is the beginning of a stamp, whose rest has not come yet."""
    part = data[at : at + _LONGEST]
    return len(part) < _LONGEST and any(_STAMP.fullmatch(part + rest) for rest in _RESTS)
