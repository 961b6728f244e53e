"""The pauses of a reflector, and the tasks that run while it reads thousands of objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from tests.support.stepped_loop import stepped
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, TooLargeError, Unreachable
from webhook.cluster.raw_responses import decode_page
from webhook.cluster.reflector import Reflector

EVENT = b'{"type":"%b","object":{"metadata":{"name":"a","resourceVersion":"2"}}}'
BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"2"}}}'
GONE = b'{"type":"ERROR","object":{"code":410,"message":"too old"}}'

Ending = list[bytes] | Exception
"""What a watch does: it sends lines and ends, or it fails."""
Endings = Callable[[int], Ending]
"""What each watch does, by its number."""


def each_time(ending: Ending) -> Endings:
    return lambda _number: ending


ENDINGS: dict[str, Ending] = {
    "410 as a response": ApiError(410, "too old"),
    "410 as an event": [GONE],
    "410 after an event": [EVENT % b"ADDED", GONE],
    "an event that is too long": TooLargeError("too long"),
    "an error": Unreachable("refused"),
    "the end, without an event": [],
    "the end, after an event": [EVENT % b"MODIFIED"],
    "the end, after a bookmark": [BOOKMARK],
}
ATTEMPTS = 12


class EndingApiServer:
    """An API server whose lists and watches end as a test says. It counts watches and lists."""

    def __init__(
        self,
        endings: Endings,
        seconds: float = 0.0,
        *,
        lists_fail: bool = False,
        answer_seconds: float = 0.0,
    ) -> None:
        self.requests = 0
        self.enough = asyncio.Event()
        self.attempts_at: list[float] = []
        self._endings = endings
        self._seconds = seconds
        self._lists_fail = lists_fail
        self._answer_seconds = answer_seconds
        self.waited_seconds = 0.0
        """The time that the reflector has waited for answers."""

    async def _wait(self) -> None:
        self.waited_seconds += self._answer_seconds
        await asyncio.sleep(self._answer_seconds)

    async def _count(self) -> None:
        self.requests += 1
        self.attempts_at.append(asyncio.get_running_loop().time())
        if self.requests == ATTEMPTS:
            self.enough.set()
        await self._wait()

    async def pages(self, *_arguments: Any) -> AsyncIterator[Any]:
        if self._lists_fail:
            await self._count()
            raise ApiError(410, "the continue parameter is too old")
        await self._wait()
        yield decode_page(b'{"metadata":{"resourceVersion":"1"},"items":[]}')

    @asynccontextmanager
    async def watch(self, *_arguments: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        await self._count()
        ending = self._endings(self.requests)
        if isinstance(ending, Exception):
            raise ending
        yield self._lines(ending)

    async def _lines(self, lines: list[bytes]) -> AsyncIterator[bytes]:
        await asyncio.sleep(self._seconds)
        for line in lines:
            yield line


async def seconds_of_attempts(server: EndingApiServer) -> float:
    """Return the time until `ATTEMPTS` attempts were made."""
    reflector = Reflector(cast(ApiServer, server), "/things", lambda _: "", lambda: None)
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    running = asyncio.create_task(reflector.run())
    await server.enough.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert reflector.objects.keys() <= {"a"}  # A bookmark is no object.
    return loop.time() - started_at


IN_TURN: Endings = lambda number: ApiError(410 if number % 2 else 404, "gone")  # noqa: E731


@pytest.mark.parametrize(
    "endings", [*map(each_time, ENDINGS.values()), IN_TURN], ids=[*ENDINGS, "410 and 404 in turn"]
)
@pytest.mark.parametrize("answer_seconds", [0.0, 5.0], ids=["quick", "slow"])
@stepped
async def test_pauses_grow_while_each_watch_ends_at_once(
    endings: Endings, answer_seconds: float
) -> None:
    server = EndingApiServer(endings, answer_seconds=answer_seconds)
    # The pauses are 0.2, 0.4, ..., 25.6 and then 30 s, or half of that.
    assert await seconds_of_attempts(server) - server.waited_seconds > 60


@stepped
async def test_pauses_grow_while_each_list_ends_in_410() -> None:
    assert await seconds_of_attempts(EndingApiServer(each_time([]), lists_fail=True)) > 60


@pytest.mark.parametrize("ending", [[], [GONE]], ids=["end", "410"])
@stepped
async def test_pause_after_a_long_watch_is_short(ending: Ending) -> None:
    watched = ATTEMPTS * 290.0
    assert await seconds_of_attempts(EndingApiServer(each_time(ending), 290.0)) < watched


@stepped
async def test_objects_of_a_crd_that_was_installed_again_are_listed_soon() -> None:
    """The API server has no CRD. At the eighth attempt, it has been installed again."""
    missing = ApiError(404, "404 page not found")
    server = EndingApiServer(lambda number: [GONE] if number == 8 else missing)
    await seconds_of_attempts(server)
    assert server.attempts_at[8] - server.attempts_at[7] < 0.5
    assert server.attempts_at[9] - server.attempts_at[8] < 1


OBJECTS = 1000
OBJECT = b'{"metadata":{"name":"%d","resourceVersion":"2"}}'
ITEMS = [OBJECT % number for number in range(OBJECTS)]


class BufferedApiServer:
    """An API server of whose list, and then of whose events, every byte has been received."""

    def __init__(self) -> None:
        self.all_read = asyncio.Event()

    async def pages(self, *_arguments: Any) -> AsyncIterator[Any]:
        yield decode_page(b'{"metadata":{"resourceVersion":"1"},"items":[%b]}' % b",".join(ITEMS))

    @asynccontextmanager
    async def watch(self, *_arguments: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        for item in ITEMS:
            yield b'{"type":"DELETED","object":%b}' % item
        self.all_read.set()
        await asyncio.Event().wait()


async def test_loop_runs_other_tasks_during_a_list_and_between_buffered_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webhook.tasks.SLICE_SECONDS", 0.0)
    monkeypatch.setattr("webhook.cluster.reflector.malloc_trim", lambda: None)
    server = BufferedApiServer()
    listed = Reflector(cast(ApiServer, server), "/things", lambda _: "", lambda: None)
    # What another task sees in each iteration of the loop.
    seen: list[int] = []
    running = asyncio.create_task(listed.run())
    async with asyncio.timeout(60):
        while not server.all_read.is_set():
            await asyncio.sleep(0)
            seen.append(len(listed.objects))
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    first_seen = seen.index(OBJECTS)
    assert first_seen >= OBJECTS, "the loop ran in between while the list was decoded"
    assert set(seen[:first_seen]) == {0}, "no part of a list is seen"
    assert set(seen) == set(range(OBJECTS + 1)), "the loop ran after each event"
