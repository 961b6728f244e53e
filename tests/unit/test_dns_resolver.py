"""DNS look-ups that hang: the threads that they hold, and the work that they must not block."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from webhook.dns_resolver import Address, LookupLimitError, Resolver, resolve

V4 = socket.AF_INET
ADDRESS = Address("192.0.2.1", 443, V4, 6)


class NameServer:
    """A resolver that answers at once, but for names that begin with `hang` only when it may."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = threading.Event()

    def __call__(self, host: str, port: int, family: int) -> list[Address]:
        self.asked.append(host)
        if host.startswith("hang"):
            self.answer.wait()
        return [Address("192.0.2.1", port, family, 6)]


@pytest.fixture
def name_server() -> Iterator[NameServer]:
    made = NameServer()
    yield made
    made.answer.set()


class Clock:
    """A clock that only tests advance."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Refused:
    times = 0

    def __call__(self) -> None:
        self.times += 1


async def hang(resolver: Resolver, owner: str, *names: str) -> list[asyncio.Task[list[Address]]]:
    """Start look-ups that hang, and return their callers."""
    tasks = [
        asyncio.create_task(resolver.addresses(f"hang-{name}", 443, V4, owner)) for name in names
    ]
    await asyncio.sleep(0)
    return tasks


async def ask(resolver: Resolver, owner: str, name: str = "quick") -> list[Address]:
    async with asyncio.timeout(30):
        return await resolver.addresses(name, 443, V4, owner)


async def test_hanging_look_ups_do_not_block_the_default_executor(name_server: NameServer) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    resolver = Resolver(9, 9, resolve=name_server)
    callers = await hang(resolver, "a", "1", "2", "3")
    async with asyncio.timeout(30):
        await asyncio.to_thread(int)
    assert not any(caller.done() for caller in callers)
    name_server.answer.set()
    assert await asyncio.gather(*callers) == [[ADDRESS]] * 3


async def test_busy_default_executor_does_not_block_a_look_up(name_server: NameServer) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    busy = asyncio.create_task(asyncio.to_thread(name_server.answer.wait))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        found = await Resolver(1, 1).addresses("localhost", 443, V4, "a")
    assert found == [("127.0.0.1", 443, V4, socket.IPPROTO_TCP)]
    name_server.answer.set()
    await busy


async def test_owner_at_its_limit_is_refused_and_others_are_answered(
    name_server: NameServer,
) -> None:
    refused = Refused()
    resolver = Resolver(64, 3, resolve=name_server, count_refused=refused)
    callers = await hang(resolver, "namespace a", "1", "2", "3")
    with pytest.raises(LookupLimitError, match=r"^3 DNS look-ups for namespace a are in flight"):
        await ask(resolver, "namespace a")
    assert await ask(resolver, "namespace b") == [ADDRESS]
    assert refused.times == 1
    name_server.answer.set()
    await asyncio.gather(*callers)
    assert await ask(resolver, "namespace a") == [ADDRESS]


async def test_several_owners_cannot_take_the_last_threads(name_server: NameServer) -> None:
    """An owner gets no more threads than are free: of 9, two owners get 3 each, and 3 remain."""
    refused = Refused()
    resolver = Resolver(9, 8, resolve=name_server, count_refused=refused)
    for number in range(9):
        for caller in await hang(resolver, "a", f"a{number}") + await hang(
            resolver, "b", f"b{number}"
        ):
            caller.add_done_callback(asyncio.Task.exception)
    assert refused.times == 2 * 9 - 6
    assert await ask(resolver, "c") == [ADDRESS]


async def test_look_up_is_refused_and_not_queued_if_all_threads_hang(
    name_server: NameServer,
) -> None:
    refused = Refused()
    resolver = Resolver(2, 1, resolve=name_server, count_refused=refused)
    await hang(resolver, "a", "1")
    await hang(resolver, "b", "2")
    with pytest.raises(LookupLimitError, match=r"^2 DNS look-ups are in flight; no more start"):
        await ask(resolver, "b")
    assert refused.times == 1
    assert "quick" not in name_server.asked


async def test_owner_without_a_look_up_gets_one_although_all_threads_hang(
    name_server: NameServer,
) -> None:
    resolver = Resolver(2, 2, resolve=name_server)
    for owner in "abcd":
        await hang(resolver, owner, owner)
    assert await ask(resolver, "e") == [ADDRESS]


async def test_callers_share_a_look_up_until_it_is_stuck(
    name_server: NameServer,
) -> None:
    clock = Clock()
    resolver = Resolver(9, 9, resolve=name_server, clock=clock)
    callers = await hang(resolver, "a", "1") + await hang(resolver, "b", "1")
    clock.now += 4.9
    assert resolver.stuck == 0
    clock.now += 0.2
    assert resolver.stuck == 1
    callers += await hang(resolver, "b", "1")
    assert resolver.stuck == 1
    clock.now += 5.1
    assert resolver.stuck == 2
    name_server.answer.set()
    assert await asyncio.gather(*callers) == [[ADDRESS]] * 3
    assert name_server.asked == ["hang-1"] * 2
    assert resolver.stuck == 0


async def test_cancelled_caller_does_not_cancel_the_look_up_of_others(
    name_server: NameServer,
) -> None:
    resolver = Resolver(1, 1, resolve=name_server)
    first, second = await hang(resolver, "a", "1", "1")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    with pytest.raises(LookupLimitError):
        await ask(resolver, "a")
    name_server.answer.set()
    assert await second == [ADDRESS]


async def test_errors_reach_all_callers_and_free_the_thread() -> None:
    def fail(host: str, _port: int, _family: int) -> list[Address]:
        raise socket.gaierror(socket.EAI_NONAME, f"no {host}")

    resolver = Resolver(1, 1, resolve=fail)
    for _ in range(3):
        with pytest.raises(socket.gaierror, match="no x"):
            await ask(resolver, "a", "x")
    with pytest.raises(UnicodeError):
        await Resolver(1, 1).addresses("a..b", 443, V4, "a")


def test_addresses_are_numeric() -> None:
    assert resolve("127.0.0.1", 8443, 0) == [("127.0.0.1", 8443, V4, socket.IPPROTO_TCP)]
    assert resolve("::1", 8443, 0)[0][:2] == ("::1", 8443)


END = """
import asyncio, time
from webhook.dns_resolver import Resolver

async def main():
    resolver = Resolver(1, 1, resolve=lambda *_: time.sleep(3600))
    try:
        async with asyncio.timeout(0.1):
            await resolver.addresses("hang", 443, 0, "a")
    except TimeoutError:
        print("gave up", flush=True)

asyncio.run(main())
"""


def test_process_exits_without_waiting_for_look_ups() -> None:
    done = subprocess.run([sys.executable, "-c", END], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "gave up\n", "")


LATE = """
import asyncio, threading
from webhook.dns_resolver import Resolver

answer = threading.Event()

async def main():
    resolver = Resolver(1, 1, resolve=lambda *_: answer.wait() and [])
    asyncio.ensure_future(resolver.addresses("hang", 443, 0, "a"))
    await asyncio.sleep(0)

asyncio.run(main())
(thread,) = [each for each in threading.enumerate() if each.name == "resolver"]
answer.set()
thread.join()
"""


def test_answer_after_the_event_loop_closed_is_dropped() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
