"""Where the body of a request ends that uvicorn reads."""

from __future__ import annotations

import re

_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]+")
_LEADING_ZEROS = re.compile(rb"\A0+(?=[0-9A-Fa-f])")
_CHUNK_SIZE_BYTES = 20
"""Maximum number of characters that are kept of the line with the size of a chunk. The parser
refuses a size of more than 16 digits behind leading zeros."""
MAX_SMALL_CHUNKS = 1000
"""Maximum number of small chunks in a body. Each chunk calls Python several times, so 60 clients
that sent chunks of one byte delayed reviews by 1.7 s. HTTP libraries send larger chunks."""
SMALL_CHUNK_BYTES = 1024
"""Chunks below this size are small."""
_INVALID_LINE = b"too many small chunks\r\n"
"""A line that the inner protocol answers with 400 in place of the size of a chunk."""


class CountedBody:
    """Finds the end of a body by its Content-Length."""

    def __init__(self, length: int) -> None:
        self._missing_bytes = length

    def take(self, data: bytes) -> bytes:
        """Return the part of `data` that belongs to the body."""
        body = data[: self._missing_bytes]
        self._missing_bytes -= len(body)
        return body


class ChunkedBody:
    """Finds the end of a chunked body, and removes its trailer section.

    It does not check the syntax. The inner protocol does that.
    """

    def __init__(self) -> None:
        self.complete = False
        """Whether the end was found, or an error that makes the inner protocol answer 400."""
        self._data_bytes = 0
        """The number of following bytes that are data of a chunk, with the line end behind it."""
        self._small_chunks = 0
        self._size = b""
        """The beginning of an incomplete line with the size of a chunk."""
        self._lacks_end = False
        """Whether the empty line is missing that ends a body without trailers."""

    def take(self, data: bytes) -> bytes:
        """Return the part of `data` that belongs to the body."""
        position = 0
        while position < len(data) and not self.complete:
            if self._data_bytes:
                skipped_bytes = min(self._data_bytes, len(data) - position)
                self._data_bytes -= skipped_bytes
                position += skipped_bytes
                continue
            if not self._size and self._small_chunks > MAX_SMALL_CHUNKS:
                self.complete = True
                return data[:position] + _INVALID_LINE
            line_end = data.find(b"\n", position) + 1
            line = data[position : line_end or len(data)]
            position += len(line)
            # A chunk extension has no maximum length, and the parser ignores it.
            self._size = _LEADING_ZEROS.sub(b"", self._size + line)[:_CHUNK_SIZE_BYTES]
            if line_end:
                self._begin_chunk()
        end = b"\r\n" if self._lacks_end else b""
        self._lacks_end = False
        return data[:position] + end

    def _begin_chunk(self) -> None:
        """Read the size of the next chunk. The last chunk has the size 0."""
        digits = _CHUNK_SIZE.match(self._size)
        size = int(digits[0], 16) if digits else 0
        self._size = b""
        if size:
            self._data_bytes = size + len(b"\r\n")
            self._small_chunks += size < SMALL_CHUNK_BYTES
        else:
            self.complete = True
            self._lacks_end = digits is not None
