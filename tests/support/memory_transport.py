"""A transport without a socket, which records what a protocol does with it."""

from __future__ import annotations

import asyncio
from typing import Any


class MemoryTransport(asyncio.Transport):
    """The server's end of a connection. The test is the client, and calls the protocol's events."""

    def __init__(self, protocol: asyncio.BaseProtocol, **extra: Any) -> None:
        super().__init__(extra)
        self.protocol: Any = protocol
        self.sent = bytearray()
        """All bytes that were written."""
        self.writes = 0
        self.capacity: int | None = None
        """The number of bytes after which writing is paused."""
        self.paused = False
        """Whether writing is paused."""
        self.write_limits: tuple[int | None, int | None] = None, None
        """The high and the low water mark of the write buffer."""
        self.reading = True
        self.closed = False
        """Whether the protocol has closed the connection, or aborted it."""
        self.aborted = False
        self.lost = False
        """Whether the protocol knows that the connection is lost."""
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.aborted:
            return
        assert not self.closed
        self.writes += 1
        self.sent += data
        if self.capacity is not None and len(self.sent) >= self.capacity:
            self.capacity = None
            self.paused = True
            self.protocol.pause_writing()

    def read_all(self) -> None:
        """Let the client read everything, after writing was paused."""
        if self.paused:
            self.paused = False
            self.protocol.resume_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.paused = False
        """Whether writing is paused."""
        self.write_limits = high, low

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        """Lose the connection, as a real transport does: in the loop's next iteration."""
        if not self.aborted:
            self.closed = self.aborted = True
            asyncio.get_running_loop().call_soon(self.lose, None)

    def lose(self, error: Exception | None = None) -> None:
        """Lose the connection. Further calls do nothing."""
        if not self.lost:
            self.closed = self.lost = True
            self.protocol.connection_lost(error)
