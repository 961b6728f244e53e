"""The end of the application when the server gets one signal, or several at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from fastapi import FastAPI

from webhook.server.drain import Drain
from webhook.server.run import _handle_signal, _serve_until_drained


@pytest.mark.parametrize("signals", [1, 2, 3])
async def test_application_ends_before_the_server_however_many_signals_arrive(
    signals: int, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        events.append("begins")
        yield
        await asyncio.sleep(0)
        events.append("ends")

    server = uvicorn.Server(uvicorn.Config(FastAPI(lifespan=lifespan), log_config=None))
    drain = Drain(idle_seconds=0, timeout_seconds=0)
    serving = asyncio.create_task(_serve_until_drained(server, drain))
    while not server.started:  # noqa: ASYNC110 (uvicorn has no event)
        await asyncio.sleep(0)
    for _ in range(signals):
        _handle_signal(server, drain)
    await serving
    assert events == ["begins", "ends"]
    assert len(asyncio.all_tasks()) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
