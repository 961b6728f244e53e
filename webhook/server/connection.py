"""A connection of the server, with an end to slow clients.

uvicorn waits for the head of a request for as long as it takes, and for the rest of one that was
answered early. Nothing here costs a request more than setting a flag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from time import monotonic

from uvicorn.protocols.http.flow_control import FlowControl

from webhook.server.protocol import DirectConnection

HEAD_SECONDS = 10
"""From the first byte of a request to the end of its headers."""
REST_SECONDS = 5
"""For the rest of a request that was answered before it had come: hanging up at once would make
the client fail to write, and never read the answer (`mapRoundTripError` of Go's net/http)."""
UNREAD_SECONDS = 7
"""For a client to read on, once it has left some of its answers unread."""
MOST_UNREAD = 64 * 1024
"""Bytes of answers that are encrypted and wait for their client; the answers wait behind them."""
GOODBYE_SECONDS = 1
"""For a client to hang up as well."""
_NO_UPGRADE = "This server has HTTP/1.1 only: send no Upgrade header, and no CONNECT."
MAX_HEAD = 64 * 1024
"""Bytes of a request line and headers; a token in them takes a few thousand."""


class _UpgradeError(Exception):
    """A request for another protocol. The parser stops at it, and uvicorn answers 400."""


class _Flow(FlowControl):
    """uvicorn's, which reads on after each answer, however many requests are waiting for theirs."""

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        # The request before those that wait has come to its end.
        if not self._waiting:
            super().resume_reading()


class Connection(DirectConnection):
    """One connection of a client."""

    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _unread: asyncio.TimerHandle | None = None
    """The end of the patience with a client that does not read."""
    _idling: asyncio.TimerHandle | None = None
    """Looks now and then whether something came; to start a timer anew after each review would
    take longer than to read its head."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client that sends nothing is idle, as between two requests."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        transport.set_write_buffer_limits(MOST_UNREAD)
        self._came = monotonic()
        self._look_again(self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._disarm()
        self._unread_no_longer()
        if self._idling is not None:
            self._idling.cancel()
            self._idling = None
        super().connection_lost(exc)
        # uvicorn leaves this timer running where the connection broke.
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Take what came; an unfinished head may take neither long nor much."""
        super().data_received(data)
        if self._in_head:
            self._watch_head(len(data))

    def on_headers_complete(self) -> None:
        """The head has come in time."""
        self._head_bytes = 0
        if self._timer is not None:
            self._disarm()
        if self._asks_for_another_protocol:
            self._in_head = False
            if not self._is_at_rest:
                # Its answer would be taken for that of the request before.
                self.transport.abort()
            raise _UpgradeError
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is being read, and close the connection."""
        super().send_400_response(_NO_UPGRADE if self._asks_for_another_protocol else msg)

    @property
    def _asks_for_another_protocol(self) -> bool:
        """Whether the request has an Upgrade header, or is a CONNECT.

        The parser takes what follows such a head for another protocol: uvicorn goes on without the
        body, or reads the body as the next request.
        """
        # Before the first request they are None, whatever their type says.
        named = any(name == b"upgrade" for name, _ in self.headers or ())
        return named or bool(self.parser.should_upgrade())

    def on_message_complete(self) -> None:
        """The rest of a request that was answered early has come as well."""
        super().on_message_complete()
        if self.cycle.response_complete:
            # uvicorn leaves it at that, as though there was more to come.
            self.cycle.more_body = False
            self._disarm()

    def on_response_complete(self) -> None:
        """Give a client that is still sending a while to finish."""
        super().on_response_complete()
        # With requests in a row, the one that is being read may be a later one.
        if self.cycle.more_body and self.cycle.response_complete:
            self._arm(REST_SECONDS)

    def pause_writing(self) -> None:
        """Wait for a client to read; what it does not read takes up memory, and a task its turn."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read."""
        self._unread_no_longer()
        super().resume_writing()

    def shutdown(self) -> None:
        """Close it if it is idle; one that has begun a request is answered first."""
        if self._in_head:
            return
        self._let_go()
        super().shutdown()
        if self.transport.is_closing():
            self._hang_up()

    def _look_again(self, seconds: float) -> None:
        self._idling = self.loop.call_later(seconds, self._end_if_idle)

    def _end_if_idle(self) -> None:
        """Hang up on a client that has sent nothing for long, and has no answer coming."""
        left = self._came + self.timeout_keep_alive - monotonic()
        if left > 0 or not self._is_at_rest:
            self._look_again(left if left > 0 else self.timeout_keep_alive)
        else:
            self._hang_up()

    def _watch_head(self, received: int) -> None:
        if self.transport.is_closing():
            return
        if not self._head_bytes:
            self._arm(HEAD_SECONDS)
            # What came with it may belong to the request before.
            received = 1
        self._head_bytes += received
        if self._head_bytes > MAX_HEAD:
            self.send_400_response(f"The head is longer than {MAX_HEAD} bytes.")

    def _unread_no_longer(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, self._hang_up)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hang_up(self) -> None:
        self._disarm()
        self.transport.close()
        # uvloop would wait 30 s for the client to end its side of TLS, and uvicorn for uvloop.
        self._timer = self.loop.call_later(GOODBYE_SECONDS, self.transport.abort)
