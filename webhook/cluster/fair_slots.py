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
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

FIRST = None
"""The client of requests that are served before all others, and that have no share. Only what a
client cannot invent may use it."""


class NoSlotError(Exception):
    """No slot was free in time, or too many requests of the client wait already."""


@dataclass(slots=True)
class _Client:
    slots: int = 0
    """The number of slots that the client has."""
    # OrderedDict, because `next(iter(...))` of a dict takes longer for each key that was removed.
    waiting: OrderedDict[asyncio.Future[None], None] = field(default_factory=OrderedDict)
    """The requests that wait for a slot, the oldest one first."""


class FairSlots:
    """A semaphore that is fair to clients. Clients that wait are served round robin.

    - `slots` is the maximum number of requests at the same time, and `slots_per_client` that of one
      client, so that no client has all slots.
    - `min_seconds` limits the rate: a slot is free again when its request has ended, but no earlier
      than this time after its request began.
    - `max_waiting_per_client` limits the memory. A client without a slot and without a waiting
      request is forgotten. Each step takes constant time.
    """

    def __init__(
        self, slots: int, slots_per_client: int, max_waiting_per_client: int, min_seconds: float
    ) -> None:
        self._slots = slots
        self._slots_per_client = slots_per_client
        self._max_waiting_per_client = max_waiting_per_client
        self._min_seconds = min_seconds
        self._free_slots = slots
        self._clients: dict[str | None, _Client] = {}
        self._next: OrderedDict[str | None, _Client] = OrderedDict()
        """The clients that wait and have less than their share, in the order of their turns."""

    @asynccontextmanager
    async def slot(self, client: str | None, seconds: float) -> AsyncIterator[None]:
        """Hold a slot while the block runs. Wait for it for at most `seconds`.

        `client` is the client's address, or FIRST. Raises NoSlotError.
        """
        await self._acquire(client, seconds)
        loop = asyncio.get_running_loop()
        free_at = loop.time() + self._min_seconds
        try:
            yield
        finally:
            if loop.time() < free_at:
                loop.call_at(free_at, self._release, client)
            else:
                self._release(client)

    async def _acquire(self, client: str | None, seconds: float) -> None:
        found = self._clients.setdefault(client, _Client())
        if len(found.waiting) >= self._max_waiting_per_client:
            raise NoSlotError(f"{len(found.waiting)} requests of this client wait already")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        found.waiting[waiter] = None
        self._update(client, found)
        self._serve()
        try:
            async with asyncio.timeout(seconds):
                await self._wait(waiter, client, found)
        except TimeoutError:
            raise NoSlotError(f"requests before it took more than {seconds:.2g} s") from None

    async def _wait(self, waiter: asyncio.Future[None], client: str | None, found: _Client) -> None:
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in found.waiting:
                del found.waiting[waiter]
                self._update(client, found)
            elif not waiter.cancelled():  # It got a slot, and was cancelled before it ran.
                self._release(client)
            raise

    def _release(self, client: str | None) -> None:
        found = self._clients[client]
        found.slots -= 1
        self._free_slots += 1
        self._update(client, found)
        self._serve()

    def _serve(self) -> None:
        """Give the free slots to clients in the order of their turns."""
        while self._free_slots and self._next:
            client, found = self._next.popitem(last=False)
            waiter, _ = found.waiting.popitem(last=False)
            if not waiter.done():  # It is done if it was cancelled in this iteration of the loop.
                waiter.set_result(None)
                found.slots += 1
                self._free_slots -= 1
            self._update(client, found)

    def _update(self, client: str | None, found: _Client) -> None:
        """Give a client a turn if it may have another slot. Forget it if it needs none."""
        max_slots = self._slots if client is FIRST else self._slots_per_client
        if found.waiting and found.slots < max_slots:
            self._next.setdefault(client, found)
            if client is FIRST:
                self._next.move_to_end(client, last=False)
        else:
            self._next.pop(client, None)
            if not found.waiting and not found.slots:
                del self._clients[client]
