"""Connections that uvicorn serves: one request each, counted, timed, and cut to its body.

`ReviewProtocol` hands a connection over as soon as the head of its first request that is no review
is complete. From then on a UvicornConnection is the protocol of the transport, until the connection
ends. uvicorn's own protocol (the inner protocol) reads the request and writes to the transport
itself.

uvicorn alone limits neither the number nor the time of requests. 998 requests with heads of 64 KiB
once took the process to 597 MiB. What a UvicornConnection adds:

- **A place**, from the head to the end of the connection. Places are limited in all, and for each
  client address. Probes have places of their own, so no other request keeps them away.
- **The memory budget** counts the head for as long, because uvicorn holds it.
- **One lifetime**, at the end of which the connection is aborted.
- **The write timeout**, and the pause of writing that was in force before.
- **Exactly the body.** A request behind it never reaches uvicorn, and neither do trailers, which
  uvicorn stores without a limit: 9.9 MiB of them left 195 MiB.

uvicorn closes the transport after its answer, because the request says `Connection: close`. The
client may then still send its body. The TLS transport of uvloop reads and discards it until the
client closes its side, or until the timeout of the TLS shutdown. Otherwise a Go client could fail
to write the body, and would then not read the answer (`mapRoundTripError` in net/http).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from webhook.server.connections.body_end import ChunkedBody, CountedBody
from webhook.server.connections.client_address import client_address
from webhook.server.limits import Limits

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    from webhook.server.connections.request_head import RequestHead
    from webhook.server.reviews.load_shedding import MemoryBudget


class UvicornConnection(asyncio.Protocol):
    """The protocol of a connection whose only request uvicorn answers."""

    def __init__(
        self,
        transport: asyncio.Transport,
        inner: HttpToolsProtocol,
        head: RequestHead,
        *,
        places: Places,
        budget: MemoryBudget,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._transport = transport
        self._inner = inner
        self._body = ChunkedBody() if head.is_chunked else CountedBody(head.length)
        self._places = places
        self._budget = budget
        self._write_timeout_seconds = limits.write_timeout_seconds
        self._loop = loop
        self._head_bytes = 0
        seconds = (
            limits.probe_timeout_seconds if head.is_probe else limits.handed_over_timeout_seconds
        )
        self._lifetime = loop.call_later(seconds, transport.abort)
        self._write_timer: asyncio.Handle | None = None

    def begin(self, head: bytes, *, write_paused: bool) -> None:
        """Pass the head to the inner protocol. `data_received` passes on what follows it.

        `write_paused` says that the transport has called `pause_writing` of the protocol before.
        """
        self._head_bytes = len(head)
        self._budget.used_bytes += self._head_bytes
        self._inner.connection_made(self._transport)
        if write_paused:
            self.pause_writing()
        line, line_end, headers = head.partition(b"\r\n")
        self._inner.data_received(b"%b\r\nConnection: close%b%b" % (line, line_end, headers))

    def data_received(self, data: bytes) -> None:
        """Pass on the part of the data that belongs to the body. The rest is discarded."""
        body = self._body.take(data)
        if body and not self._transport.is_closing():
            self._inner.data_received(body)

    def pause_writing(self) -> None:
        """Start the write timeout, because an unread answer occupies memory."""
        self._write_timer = self._loop.call_later(
            self._write_timeout_seconds, self._transport.abort
        )
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Cancel the write timeout, and let the inner protocol write more."""
        self._cancel_write_timer()
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back the place and the memory, and cancel the timers."""
        self._places.leave(self._transport)
        self._budget.used_bytes -= self._head_bytes
        self._cancel_write_timer()
        self._lifetime.cancel()
        self._inner.connection_lost(exc)

    def _cancel_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


@dataclass(slots=True)
class Places:
    """The addresses of the clients of connections that are handed over, the oldest one first."""

    probes: dict[asyncio.Transport, str] = field(default_factory=dict)
    others: dict[asyncio.Transport, str] = field(default_factory=dict)

    def take(self, transport: asyncio.Transport, limits: Limits, *, is_probe: bool) -> bool:
        """Give a connection a place. Return False if its client, or all clients, have too many.

        A probe gets its place from the oldest one. If it were refused, a client that does not close
        its connections could keep the kubelet's probes away.
        """
        address = client_address(transport)
        places = self.probes if is_probe else self.others
        max_places = limits.max_probes if is_probe else limits.max_handed_over
        of_client = [found for found, its_address in places.items() if its_address == address]
        if len(of_client) >= limits.max_handed_over_per_client or len(places) >= max_places:
            if not is_probe:
                return False
            is_full = len(of_client) < limits.max_handed_over_per_client
            oldest = next(iter(places if is_full else of_client))
            self.leave(oldest)
            oldest.abort()
        places[transport] = address
        return True

    def leave(self, transport: asyncio.Transport) -> None:
        """Give a place back. Further calls do nothing."""
        self.probes.pop(transport, None)
        self.others.pop(transport, None)
