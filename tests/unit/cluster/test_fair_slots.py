"""Slots of which each client gets a fair share, on an event loop with its own clock."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress

import pytest

from tests.support.complexity import grows_linearly
from tests.support.stepped_loop import stepped
from webhook.cluster.fair_slots import FIRST, FairSlots, NoSlotError

FOREVER = 1e6


async def hold(slots: FairSlots, client: str | None, seconds: float = FOREVER) -> None:
    async with slots.slot(client, FOREVER):
        await asyncio.sleep(seconds)


async def is_free(slots: FairSlots, client: str | None) -> bool:
    """Whether a client gets a slot at once."""
    try:
        async with slots.slot(client, 0):
            return True
    except NoSlotError:
        return False


@stepped
async def test_waiting_clients_are_served_in_turns_and_trusted_requests_wait_for_none() -> None:
    slots = FairSlots(1, 1, 100, 0)
    order: list[str | None] = []

    async def request(client: str | None) -> None:
        async with slots.slot(client, FOREVER):
            order.append(client)
            await asyncio.sleep(1)

    clients = ["a"] * 4 + ["b"] * 3 + ["honest", FIRST, FIRST]
    await asyncio.gather(*map(request, clients))
    assert [each for each in order if each] == ["a", "b", "honest", "a", "b", "a", "b", "a"]
    assert order.index(FIRST) == 1
    assert order[2:4].count(FIRST) == 1


@stepped
async def test_trusted_requests_may_have_all_slots() -> None:
    slots = FairSlots(4, 1, 100, 0)
    held = [asyncio.create_task(hold(slots, FIRST)) for _ in range(3)]
    await asyncio.sleep(0)
    assert await is_free(slots, FIRST)
    for task in held:
        task.cancel()


@stepped
async def test_slots_stay_taken_for_the_minimum_time() -> None:
    loop = asyncio.get_running_loop()
    slots = FairSlots(4, 2, 100, 0.1)
    start = loop.time()
    began: list[float] = []

    async def request() -> None:
        async with slots.slot("a", FOREVER):
            began.append(loop.time() - start)

    await asyncio.gather(*(request() for _ in range(20)))
    assert began == pytest.approx([index // 2 * 0.1 for index in range(20)])


@stepped
async def test_request_is_refused_if_too_many_of_its_client_wait_or_no_slot_is_free_in_time() -> (
    None
):
    slots = FairSlots(2, 1, 3, 0)
    held = [asyncio.create_task(hold(slots, "a")) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(NoSlotError, match="3 requests of this client wait already"):
        await hold(slots, "a")
    assert await is_free(slots, "b")
    held[-1].cancel()
    await asyncio.sleep(0)
    start = asyncio.get_running_loop().time()
    with pytest.raises(NoSlotError, match=r"requests before it took more than 2\.5 s"):
        async with slots.slot("a", 2.5):
            pass
    assert asyncio.get_running_loop().time() - start == pytest.approx(2.5)
    for task in held:
        task.cancel()


@stepped
async def test_client_without_requests_is_forgotten() -> None:
    """A client may have any number of addresses."""

    class Address(str):
        pass

    slots = FairSlots(1, 1, 100, 0)
    address = Address("a")
    await asyncio.gather(*(hold(slots, address, 0.1) for _ in range(3)))
    found = weakref.ref(address)
    del address
    assert found() is None


@pytest.mark.parametrize("iterations", [0, 1, 2])
@stepped
async def test_cancelled_requests_free_their_slots(iterations: int) -> None:
    """A request can be cancelled after it got a slot, and before it runs."""
    slots = FairSlots(1, 1, 100, 0)
    async with slots.slot("a", 0):
        waiting = [asyncio.create_task(hold(slots, client)) for client in "abb"]
        await asyncio.sleep(0)
        waiting[1].cancel()
    for _ in range(iterations):
        await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert await is_free(slots, "b")


@pytest.mark.parametrize("clients", [1, 10**9])
def test_time_grows_in_proportion_to_the_number_of_requests(clients: int) -> None:
    @stepped
    async def attack(requests: int) -> None:
        slots = FairSlots(1, 1, requests, 0)
        async with slots.slot("holder", 0):
            waiting = [
                asyncio.create_task(hold(slots, str(index % clients), 0))
                for index in range(requests)
            ]
            await asyncio.sleep(0)
            for task in waiting[: requests // 2]:
                task.cancel()
        for task in waiting:
            with suppress(asyncio.CancelledError):
                await task

    assert grows_linearly(int, attack, largest=20_000)


@stepped
async def test_client_with_a_large_share_has_one_turn_at_a_time() -> None:
    slots = FairSlots(2, 4, 100, 0)
    order: list[str] = []

    async def request(client: str) -> None:
        async with slots.slot(client, FOREVER):
            order.append(client)
            await asyncio.sleep(1)

    await asyncio.gather(*map(request, ["a"] * 6 + ["b", "c"]))
    assert order[:5] == ["a", "a", "a", "b", "c"]
