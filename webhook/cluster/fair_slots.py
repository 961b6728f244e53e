"""Slots for requests to the API server, of which each client address gets a fair share.

Clients cause some requests to the API server before podsettle knows who they are: look-ups of the
namespaces that reviews name, and reviews of tokens. A client can invent any number of names and
tokens. One limit for all clients would let such a client starve the others, so each client address
has a share.

The address is all that is known of a client at this point. An API server sends all its reviews from
one address, or from few, and no pod has that address. So an attacker's pod competes with the API
server as one client with one other, however many requests it sends. Two cases remain, against which
only `--client-ca` or a NetworkPolicy helps (docs/http.md, Threats): an attacker whose address a
proxy or SNAT makes the same as the API server's, and an attacker with pods at many addresses, each
of which has a share.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

FIRST = None
"""The client of requests that wait for no others. They have as many slots as all others together.
Only what a client cannot invent may use it."""
MIN_SLOT_SECONDS = 0.1
# In the time that a review waits for a namespace, a client's share serves fewer, so more would wait
# in vain. In the time that a token waits, it serves more.
_MAX_WAITING_PER_CLIENT = 64


class NoSlotError(Exception):
    """No slot was free in time, or too many requests of the client wait already."""


class _Client:
    def __init__(self, slots: int) -> None:
        self.share = asyncio.Semaphore(slots)
        self.turn = asyncio.Lock()
        """Held by the one request of the client that waits in the queue of all clients."""
        self.requests = 0
        """The number of requests that have a slot or wait for one."""


class FairSlots:
    """A semaphore that is fair to clients. Clients that wait are served round robin.

    - `slots` is the maximum number of requests at the same time, and `slots_per_client` that of one
      client, so that no client has all slots.
    - `min_seconds` limits the rate: a slot is free again when its request has ended, but no earlier
      than this time after its request began.
    - `max_waiting_per_client` limits the memory. A client without requests is forgotten.
    """

    def __init__(
        self,
        slots: int,
        slots_per_client: int,
        max_waiting_per_client: int = _MAX_WAITING_PER_CLIENT,
        min_seconds: float = MIN_SLOT_SECONDS,
    ) -> None:
        self._slots_per_client = slots_per_client
        self._max_waiting_per_client = max_waiting_per_client
        self._min_seconds = min_seconds
        self._slots = asyncio.Semaphore(slots)
        self._first = asyncio.Semaphore(slots)
        self._clients: dict[str | None, _Client] = {}

    @asynccontextmanager
    async def slot(self, client: str | None, seconds: float) -> AsyncIterator[None]:
        """Hold a slot while the block runs. Wait for it for at most `seconds`.

        `client` is the client's address, or FIRST. Raises NoSlotError.
        """
        own = self._clients.setdefault(client, _Client(self._slots_per_client))
        waiting = own.requests - self._slots_per_client
        if waiting >= self._max_waiting_per_client:
            raise NoSlotError(f"{waiting} requests of this client wait already")
        held: list[asyncio.Semaphore] = []
        own.requests += 1

        def release() -> None:
            for semaphore in held:
                semaphore.release()
            own.requests -= 1
            if not own.requests:
                del self._clients[client]

        loop, free_at = asyncio.get_running_loop(), 0.0
        try:
            try:
                async with asyncio.timeout(seconds):
                    slots = self._first if client is FIRST else self._slots
                    if client is not FIRST:
                        await own.share.acquire()
                        held.append(own.share)
                    async with own.turn:
                        await slots.acquire()
                        held.append(slots)
            except TimeoutError:
                raise NoSlotError(f"requests before it took more than {seconds:.2g} s") from None
            free_at = loop.time() + self._min_seconds
            yield
        finally:
            if loop.time() < free_at:
                loop.call_at(free_at, release)
            else:
                release()
