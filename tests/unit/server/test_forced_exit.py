"""The server of both ports: its end by one signal or several, and the memory it gives back."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import Mock

import pytest

from tests.support.server_fixtures import make_components
from tests.support.waiting import TIMEOUT_SECONDS
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.server import run
from webhook.server.drain import Drain
from webhook.server.run import listen


def server_of(source: ManifestsSource, *listeners: Any, **options: Any) -> run.Server:
    drain = Drain(idle_seconds=0, timeout_seconds=0)
    components = make_components(source, drain=drain, **options)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    return run.Server(components, context, *listeners)


@pytest.mark.parametrize("signals", [1, 2, 3])
async def test_application_ends_before_the_server_however_many_signals_arrive(
    signals: int, source: ManifestsSource, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        events.append("begins")
        yield
        await asyncio.sleep(0)
        events.append("ends")

    listeners = [listen("127.0.0.1", 0, "") for _ in range(2)]
    server = server_of(source, *listeners, running=running)
    serving = asyncio.create_task(server.serve(sockets=[]))
    while not server.started:  # noqa: ASYNC110 (uvicorn has no event)
        await asyncio.sleep(0)
    for _ in range(signals):
        server.handle_exit(signal.SIGTERM, None)
    await serving
    assert events == ["begins", "ends"]
    await asyncio.sleep(0)  # The accept loops close their ports.
    assert len(asyncio.all_tasks()) == 1
    assert all(listener.fileno() == -1 for listener in listeners)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_request_that_the_exit_cancels_is_no_error(source: ManifestsSource) -> None:
    """A second signal cancels the requests of the web port, and uvicorn logs how each ended."""
    listeners = [listen("127.0.0.1", 0, "") for _ in range(2)]
    server_of(source, *listeners)
    for listener in listeners:
        listener.close()
    log = logging.getLogger("uvicorn.error")

    def is_logged(error: BaseException) -> bool:
        info = (type(error), error, None)
        record = log.makeRecord("uvicorn.error", logging.ERROR, "f", 1, "an error", (), info)
        return bool(log.filter(record))

    assert is_logged(ValueError())
    assert not is_logged(asyncio.CancelledError())


async def test_memory_is_returned_after_many_new_connections_only(
    source: ManifestsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, trimmed, waits = asyncio.get_running_loop(), asyncio.Event(), list[float]()
    monkeypatch.setattr(run, "malloc_trim", lambda: loop.call_soon_threadsafe(trimmed.set))
    server = server_of(source, None, None)
    server.lifespan = Mock(state={})
    sleep = asyncio.sleep

    async def next_minute(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            assert not trimmed.is_set()
            for _ in range(500):
                server._new_web_protocol()
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", next_minute)
    trimming = asyncio.create_task(server._trim_memory())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await trimmed.wait()
    trimming.cancel()
    assert set(waits) == {60}
