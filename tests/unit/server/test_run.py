"""The server of both ports: its sockets, its limit on open files, its memory, and its end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import Mock

import pytest
import uvicorn

from tests.support.server_fixtures import make_components
from tests.support.waiting import TIMEOUT_SECONDS
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.server import run
from webhook.server.drain import Drain
from webhook.server.run import AddressError, listen


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


async def test_requests_of_the_web_port_get_only_the_time_that_reviews_leave(
    source: ManifestsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both together must end before the kubelet kills the process."""
    given = []

    async def of_uvicorn(server: run.Server, _sockets: object) -> None:
        given.append(server.config.timeout_graceful_shutdown)

    monkeypatch.setattr(uvicorn.Server, "shutdown", of_uvicorn)
    server = server_of(source, None, None)
    await server.shutdown()
    server._reviews.connections[Mock()] = None
    monkeypatch.setattr(run, "_IN_FLIGHT_TIMEOUT_SECONDS", 0)
    await server.shutdown()
    assert given == [10, 1]


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


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_wildcard_address_includes_ipv4_and_ipv6(address: str) -> None:
    with listen("::", 0, "") as listener:
        socket.create_connection((address, listener.getsockname()[1])).close()


def test_wildcard_address_without_ipv6_includes_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    # As on a kernel without IPv6.
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listen("::", 0, "") as listener:
        assert listener.family is socket.AF_INET
        socket.create_connection(("127.0.0.1", listener.getsockname()[1])).close()


def test_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(AddressError, match=r"cannot listen on 192\.0\.2\.1 port 0: Cannot assign"):
        listen("192.0.2.1", 0, "")


def test_host_that_cannot_be_resolved_is_an_error_with_its_cause() -> None:
    with pytest.raises(AddressError, match=r"^cannot listen on no host port 0: .*[Nn]ame") as error:
        listen("no host", 0, "")
    assert "Unknown" not in str(error.value)


_CODE = """
import logging, resource, sys
from webhook.server.limits import Limits
from webhook.server.run import raise_open_file_limit
logging.basicConfig(format="%(message)s", stream=sys.stdout)
soft, hard, count = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
none = dict.fromkeys(("max_web_connections", "max_handshakes", "max_web_handshakes"), 0)
raise_open_file_limit(Limits(max_connections=count, **none))
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "limits"), [(512, "1256 2048"), (1256, "1256 2048"), (1800, "1800 2048")]
)
def test_soft_limit_is_raised_if_it_is_too_low(soft: int, limits: str) -> None:
    assert _run(soft, 2048, 1000) == [limits]


def test_hard_limit_that_is_too_low_is_a_warning() -> None:
    warning, limits = _run(512, 1255, 1000)
    assert limits == "1255 1255"
    assert warning.startswith("open files: the hard limit of 1255 is too low for many clients")
    assert "raise it to 1256" in warning


def _run(*arguments: int) -> list[str]:
    command = [sys.executable, "-c", _CODE, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
