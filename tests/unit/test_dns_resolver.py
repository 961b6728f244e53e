"""DNS look-ups that hang: the threads that they hold, and the work that they must not block."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from webhook.dns_resolver import ThreadResolver

V4 = socket.AF_INET


class NameServer:
    """A getaddrinfo that answers at once, but for names that begin with `hang` when it may."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = threading.Event()

    def __call__(self, host: str, port: int, *_: object, flags: int) -> list[Any]:
        assert flags == socket.AI_ADDRCONFIG
        self.asked.append(host)
        if host.startswith("hang"):
            self.answer.wait()
        return [(V4, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port))]


@pytest.fixture
def name_server() -> Iterator[NameServer]:
    made = NameServer()
    yield made
    made.answer.set()


async def hang(resolver: ThreadResolver, *names: str) -> list[asyncio.Task[list[str]]]:
    """Start look-ups that hang, and return their callers."""
    tasks = [asyncio.create_task(ask(resolver, f"hang-{name}")) for name in names]
    await asyncio.sleep(0)
    return tasks


async def ask(resolver: ThreadResolver, name: str = "quick") -> list[str]:
    async with asyncio.timeout(30):
        return [each["host"] for each in await resolver.resolve(name, 443, V4)]


async def test_hanging_look_ups_do_not_block_the_default_executor(name_server: NameServer) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    callers = await hang(ThreadResolver(name_server), "1", "2", "3")
    async with asyncio.timeout(30):
        await asyncio.to_thread(int)
    assert not any(caller.done() for caller in callers)
    name_server.answer.set()
    assert await asyncio.gather(*callers) == [["192.0.2.1"]] * 3


async def test_busy_default_executor_does_not_block_a_look_up(name_server: NameServer) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    busy = asyncio.create_task(asyncio.to_thread(name_server.answer.wait))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        (found,) = await ThreadResolver().resolve("localhost", 443, V4)
    assert (found["hostname"], found["host"], found["port"]) == ("localhost", "127.0.0.1", 443)
    assert (found["family"], found["proto"]) == (V4, socket.IPPROTO_TCP)
    name_server.answer.set()
    await busy


async def test_callers_share_a_thread_until_their_look_up_ends(name_server: NameServer) -> None:
    resolver = ThreadResolver(name_server)
    callers = await hang(resolver, *"111", "2")
    await asyncio.sleep(0.1)
    assert sorted(name_server.asked) == ["hang-1", "hang-2"]
    name_server.answer.set()
    assert await asyncio.gather(*callers) == [["192.0.2.1"]] * 4
    assert await ask(resolver, "hang-1") == ["192.0.2.1"]
    assert len(name_server.asked) == 3


async def test_cancelled_caller_does_not_cancel_the_look_up_of_others(
    name_server: NameServer,
) -> None:
    first, second = await hang(ThreadResolver(name_server), "1", "1")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    name_server.answer.set()
    assert await second == ["192.0.2.1"]


async def test_errors_reach_all_callers_and_free_the_thread() -> None:
    def fail(host: str, *_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, f"no {host}")

    resolver = ThreadResolver(fail)
    for _ in range(9):
        with pytest.raises(socket.gaierror, match="no x"):
            await ask(resolver, "x")
    with pytest.raises(UnicodeError):
        await ThreadResolver().resolve("a..b", 443, V4)


async def test_addresses_are_numeric() -> None:
    for host in ("127.0.0.1", "::1"):
        assert [each["host"] for each in await ThreadResolver().resolve(host, 8443)] == [host]


END = """
import asyncio, time
from webhook.dns_resolver import ThreadResolver

async def main():
    try:
        async with asyncio.timeout(0.1):
            await ThreadResolver(lambda *_, flags: time.sleep(3600)).resolve("hang", 443)
    except TimeoutError:
        print("gave up", flush=True)

asyncio.run(main())
"""
LATE = """
import asyncio, threading
from webhook.dns_resolver import ThreadResolver

answer = threading.Event()

async def main():
    resolver = ThreadResolver(lambda *_, flags: answer.wait() and [])
    asyncio.ensure_future(resolver.resolve("hang", 443))
    await asyncio.sleep(0)

asyncio.run(main())
(thread,) = [each for each in threading.enumerate() if each.name == "resolver"]
answer.set()
thread.join()
print("gave up")
"""


@pytest.mark.parametrize("program", [END, LATE], ids=["still hangs", "answers late"])
def test_process_exits_without_waiting_for_look_ups(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "gave up\n", "")
