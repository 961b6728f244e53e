"""Tests of the single-flight cache of images, tokens and namespaces."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.image_fixtures import Clock
from webhook.single_flight import SingleFlightCache, TooManyError


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Asked:
    """A fetch that ends when the test sets `go`."""

    def __init__(self) -> None:
        self.times = 0
        self.go = asyncio.Event()
        self.started = asyncio.Event()

    async def __call__(self) -> int:
        self.times += 1
        self.started.set()
        await self.go.wait()
        return self.times


def cache(
    clock: Clock, *, max_entries: int = 10, max_in_flight: int = 10, max_per_owner: int = 10
) -> SingleFlightCache[str, int]:
    return SingleFlightCache(
        lambda value: 10.0 * value,
        max_entries=max_entries,
        size_of=lambda _value: 1,
        max_bytes=100,
        max_in_flight=max_in_flight,
        max_per_owner=max_per_owner,
        clock=clock,
    )


async def test_concurrent_callers_share_one_fetch(clock: Clock) -> None:
    memory, asked = cache(clock), Asked()
    waiting = [asyncio.create_task(memory.get("k", asked)) for _ in range(500)]
    await asked.started.wait()
    asked.go.set()
    assert await asyncio.gather(*waiting) == [1] * 500
    assert await memory.get("k", asked) == 1


async def test_fetch_continues_when_a_caller_is_cancelled(clock: Clock) -> None:
    memory, asked = cache(clock), Asked()
    first = asyncio.create_task(memory.get("k", asked))
    await asked.started.wait()
    second = asyncio.create_task(memory.get("k", asked))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    asked.go.set()
    async with asyncio.timeout(30):
        assert await second == 1
    third = asyncio.create_task(memory.get("l", Asked()))
    await asyncio.sleep(0)
    third.cancel()
    await memory.aclose()
    assert len(asyncio.all_tasks()) == 1 + (not third.done())


async def test_a_value_expires_after_its_ttl(clock: Clock) -> None:
    memory, asked = cache(clock), Asked()
    asked.go.set()
    assert await memory.get("k", asked) == 1
    clock.now += 9.9
    assert await memory.get("k", asked) == 1
    clock.now += 0.2
    assert await memory.get("k", asked) == 2
    clock.now += 19.9
    assert await memory.get("k", asked) == 2


async def test_the_least_recently_used_value_is_evicted(clock: Clock) -> None:
    memory, asked = cache(clock, max_entries=2), Asked()
    asked.go.set()
    for key in ("a", "b", "a", "c"):
        await memory.get(key, asked)
    assert (len(memory), asked.times) == (2, 3)
    await memory.get("a", asked)
    assert asked.times == 3
    await memory.get("b", asked)
    assert asked.times == 4


@pytest.mark.parametrize("size", [1, 40])
async def test_owner_with_the_largest_share_evicts_its_own_values(clock: Clock, size: int) -> None:
    """One namespace cannot evict the cached results of another one that has fewer."""
    memory: SingleFlightCache[tuple[str, int], int] = SingleFlightCache(
        lambda _value: 60.0, max_entries=7, size_of=lambda value: value, max_bytes=100,
        max_in_flight=10, max_per_owner=10, clock=clock,
    )  # fmt: skip
    fetched = []

    async def ask(owner: str, number: int, size: int) -> None:
        async def answer() -> int:
            fetched.append((owner, number))
            return size

        await memory.get((owner, number), answer, owner)

    for number in range(3):
        await ask("few", number, 1)
    for number in range(50):
        await ask("many", number, size)
    fetched.clear()
    for number in range(3):
        await ask("few", number, 1)
    assert fetched == []
    await ask("many", 49, size)
    assert fetched == [], "the newest values of the other owner are kept"


async def test_an_error_is_not_cached(clock: Clock) -> None:
    memory = cache(clock)

    async def fail() -> int:
        raise LookupError("no")

    for _ in range(2):
        with pytest.raises(LookupError):
            await memory.get("k", fail)
    assert len(memory) == 0


async def test_fetches_are_limited_in_total(clock: Clock) -> None:
    memory, asked = cache(clock, max_in_flight=2), Asked()
    waiting = [asyncio.create_task(memory.get(key, asked)) for key in "ab"]
    await asked.started.wait()
    with pytest.raises(TooManyError, match="2 look-ups are under way"):
        await memory.get("c", asked)
    asked.go.set()
    await asyncio.gather(*waiting)
    assert await memory.get("c", asked) == 3


async def test_owner_without_a_fetch_gets_one_above_the_total(clock: Clock) -> None:
    memory, asked = cache(clock, max_in_flight=2), Asked()
    waiting = [asyncio.create_task(memory.get(key, asked, key)) for key in "abc"]
    await asked.started.wait()
    with pytest.raises(TooManyError, match="3 look-ups are under way"):
        await memory.get("d", asked, "c")
    asked.go.set()
    assert await asyncio.gather(*waiting) == [3, 3, 3]


async def test_fetches_are_limited_per_owner(clock: Clock) -> None:
    memory, asked = cache(clock, max_per_owner=2), Asked()
    waiting = [asyncio.create_task(memory.get(key, asked, "mine")) for key in "ab"]
    await asked.started.wait()
    with pytest.raises(TooManyError, match="2 look-ups for mine are under way"):
        await memory.get("c", asked, "mine")
    waiting.append(asyncio.create_task(memory.get("c", asked, "theirs")))
    # A caller that joins a fetch in flight takes no capacity.
    waiting.append(asyncio.create_task(memory.get("c", asked, "mine")))
    asked.go.set()
    await asyncio.gather(*waiting)
    assert asked.times == 3


async def test_cached_values_are_limited_in_bytes(clock: Clock) -> None:
    def kept_bytes(value: int) -> int:
        return value

    memory: SingleFlightCache[str, int] = SingleFlightCache(
        lambda _value: 60.0, max_entries=10, size_of=kept_bytes, max_bytes=100, max_in_flight=10,
        max_per_owner=10, clock=clock,
    )  # fmt: skip

    async def ask(key: str, size: int) -> bool:
        """Get a value of this size, and return whether it was fetched."""
        asked = []

        async def answer() -> int:
            asked.append(key)
            return size

        assert await memory.get(key, answer) == size
        return bool(asked)

    assert await ask("a", 40)
    assert await ask("b", 40)
    assert not await ask("a", 40)
    assert await ask("c", 40)
    assert not await ask("a", 40)
    assert await ask("b", 40), "the least recently used one went"
    # A value above the limit evicts nothing.
    assert await ask("large", 101)
    assert await ask("large", 101)
    assert not await ask("b", 40)
    # Expired values free their bytes.
    clock.now += 61
    assert await ask("b", 50)
    assert await ask("d", 50)
    assert not await ask("b", 50)


async def test_expired_values_are_evicted(clock: Clock) -> None:
    memory, asked = cache(clock), Asked()
    asked.go.set()
    for key in "abc":
        await memory.get(key, asked)
    # The ttl is 10 s for the first value and 20 s for the second.
    clock.now += 20
    await memory.get("d", asked)
    assert len(memory) == 2


async def test_closing_cancels_fetches(clock: Clock) -> None:
    memory, asked = cache(clock), Asked()
    waiting = asyncio.create_task(memory.get("k", asked))
    await asked.started.wait()
    await memory.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_value_without_a_time_is_not_cached_and_evicts_no_other(clock: Clock) -> None:
    memory: SingleFlightCache[str, int] = SingleFlightCache(float, max_entries=1, clock=clock)

    async def fetch(key: str, value: int) -> int:
        async def found() -> int:
            return value

        return await memory.get(key, found)

    assert await fetch("a", 9) == 9
    assert [await fetch("b", 0), await fetch("b", 0)] == [0, 0]
    assert await fetch("a", 1) == 9
