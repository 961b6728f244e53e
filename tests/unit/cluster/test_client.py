"""Pages of lists from the API server, and the reflector that reads them."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.waiting import eventually
from webhook.client import is_retryable
from webhook.cluster import reflector
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, TooLargeError, Unreachable
from webhook.cluster.reflector import Reflector
from webhook.cluster.watch import WatchLimits
from webhook.kubeconfig.access import Access
from webhook.kubeconfig.credentials import Credential, FileOrData, StoredCredentials
from webhook.tasks import supervise


def name_of(item: msgspec.Raw) -> str:
    return str(msgspec.json.decode(item)["metadata"]["name"])


PAGES: dict[str, dict[str, Any]] = {
    "": {
        "metadata": {"resourceVersion": "7", "continue": "on"},
        "items": [{"metadata": {"name": "a", "resourceVersion": "5", "labels": {"team": "red"}}}],
    },
    "on": {
        "metadata": {"resourceVersion": "7"},
        "items": [
            {"metadata": {"name": "b", "resourceVersion": "6"}},
            {"metadata": {"name": "c", "resourceVersion": "7"}},
        ],
    },
}


@asynccontextmanager
async def serving(
    pages: Mapping[str, object], *, max_response_bytes: int = 1000
) -> AsyncIterator[ApiServer]:
    """Serve one list; `pages` maps each continue token to its page."""

    async def answer(request: web.Request) -> web.Response:
        if "watch" in request.query:
            return web.Response()
        return web.json_response(pages[request.query.get("continue", "")])

    async with serving_answers(answer, max_response_bytes) as server:
        yield server


@asynccontextmanager
async def serving_answers(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]], max_response_bytes: int = 1000
) -> AsyncIterator[ApiServer]:
    app = web.Application()
    app.router.add_get("/things", answer)
    async with TestServer(app) as served:
        access = Access(f"http://127.0.0.1:{served.port}")
        async with ApiServer(access, max_response_bytes=max_response_bytes) as server:
            yield server


async def test_page_without_items_is_empty() -> None:
    async with serving({"": {"metadata": {"resourceVersion": "7"}, "items": None}}) as server:
        page = await server.page("/things", "application/json")

    assert list(page.items) == []
    assert page.metadata.next == ""


VERSION = {"metadata": {"resourceVersion": "7"}}


@pytest.mark.parametrize(
    "answer",
    [
        "not an object",
        {"items": []},
        {"metadata": {}},
        {"kind": "SecretList", **VERSION},
        {"kind": "Thing", **VERSION},
        {"kind": "Status", **VERSION},
    ],
)
async def test_response_that_is_not_a_list_is_an_error(answer: object) -> None:
    async with serving({"": answer}) as server:
        with pytest.raises(Unreachable, match="GET /things: the response is not a list"):
            await server.page("/things", "application/json")


@pytest.mark.parametrize("answer", [[], [{"kind": "Deployment"}], "moved", 7, None])
async def test_response_that_is_not_an_object_is_an_error(answer: object) -> None:
    async with serving({"": answer}) as server:
        with pytest.raises(Unreachable, match="GET /things: the response is not a JSON object: "):
            await server.request("GET", "/things")


async def _request(server: ApiServer) -> None:
    await server.request("GET", "/things")


async def _fetch(server: ApiServer) -> None:
    await server.fetch("GET", "/things")


async def _page(server: ApiServer) -> None:
    await server.page("/things", "application/json")


async def _pages(server: ApiServer) -> None:
    async for _ in server.pages("/things", "application/json"):
        pass


async def _stream(server: ApiServer) -> None:
    async with aclosing(server.stream("/things", 30)) as chunks:
        async for _ in chunks:
            pass


async def _watch(server: ApiServer) -> None:
    async with server.watch("/things", "application/json", 30, WatchLimits()) as lines:
        async for _ in lines:
            pass


@pytest.mark.parametrize(
    ("read", "status"),
    [
        (_request, 200),
        (_request, 500),
        (_fetch, 200),
        (_page, 200),
        (_pages, 200),
        (_stream, 500),
        (_watch, 500),
        (_watch, 200),
    ],
)
async def test_endless_response_is_an_error_that_is_not_retried(
    read: Callable[[ApiServer], Awaitable[None]], status: int
) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)

    async with serving_answers(endless) as server, asyncio.timeout(30):
        with pytest.raises(TooLargeError) as caught:
            await read(server)
    text = str(caught.value)
    assert text.startswith("GET /things")
    assert ("more than 1000 bytes" in text) or ("a line that is too long" in text)
    assert text.endswith(f"; is {server.url} an API server?")
    assert not is_retryable(caught.value)


@pytest.mark.parametrize("read", [_request, _fetch, _watch, _stream])
async def test_connection_of_a_response_that_is_too_large_is_aborted(
    read: Callable[[ApiServer], Awaitable[None]], tmp_path: Path
) -> None:
    """A peer that does not answer the end of TLS would keep the socket for 30 s."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.crt")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)

    def answer_and_wait_for_the_end(listener: socket.socket) -> None:
        plain, _ = listener.accept()
        plain.settimeout(10)
        with plain.dup() as beneath:
            beneath.settimeout(10)
            with context.wrap_socket(plain, server_side=True) as connection:
                connection.recv(65536)
                length = b"HTTP/1.1 500 Broken\r\nContent-Length: 9999\r\n\r\n"
                connection.sendall(length + b"x" * 5000)
                # These bytes are not decrypted, so nothing answers them.
                with suppress(ConnectionResetError):
                    while beneath.recv(65536):
                        pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        access = Access(url, ca=FileOrData(tmp_path / "ca.crt"))
        ended = asyncio.create_task(asyncio.to_thread(answer_and_wait_for_the_end, listener))
        async with ApiServer(access, max_response_bytes=1000) as server:
            with pytest.raises(TooLargeError):
                await read(server)
            await ended


@pytest.mark.parametrize("read", [_request, _fetch, _page, _stream, _watch])
async def test_response_that_ends_early_is_an_error(
    read: Callable[[ApiServer], Awaitable[None]],
) -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"kind":')
        assert request.transport is not None
        request.transport.close()
        return response

    async with serving_answers(break_off) as server:
        with pytest.raises(Unreachable, match=r"GET /things: the response is incomplete$"):
            await read(server)


@pytest.mark.parametrize("read", [_request, _page, _pages])
async def test_response_that_is_nested_too_deeply_is_an_error(
    read: Callable[[ApiServer], Awaitable[None]],
) -> None:
    async with serving_answers(answering('{"a":' + "[" * 1_900_000), 2_000_000) as server:
        with pytest.raises(Unreachable, match="it is nested too deeply; is http://"):
            await read(server)


@pytest.mark.parametrize(
    ("date", "days"),
    [(timedelta(days=365), 365), (timedelta(days=-365), 0), (timedelta(0), 0), (None, 0)],
)
async def test_client_knows_how_far_the_clock_is_behind(date: timedelta | None, days: int) -> None:
    async def answer(_request: web.Request) -> web.Response:
        text = "no date" if date is None else format_datetime(datetime.now(UTC) + date, True)
        return web.json_response({}, headers={"Date": text})

    async with serving_answers(answer) as server:
        await server.request("GET", "/things")
        assert round(server.clock_behind / timedelta(days=1)) == days


def answering(text: str, status: int = 200) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=text, status=status)

    return answer


@pytest.mark.parametrize("status", [403, 404])
async def test_object_is_missing_or_forbidden_only_if_an_api_server_says_so(status: int) -> None:
    no_status: list[str] = [
        *("<html>default backend - 404</html>", "[]", '{"code":"Forbidden"}', '{"kind":"Error"}')
    ]
    for body in no_status:
        async with serving_answers(answering(body, status)) as server:
            with pytest.raises(Unreachable, match=f"/things: {status}: .* is no Status; is http"):
                await server.request("GET", "/things")
    for body, said in (
        ('{"kind":"Status","message":"no"}', "no"),
        *([("404 page not found\n", "404 page not found")] if status == 404 else []),
    ):
        async with serving_answers(answering(body, status)) as server:
            with pytest.raises(ApiError, match=f"{status}: {said}$"):
                await server.request("GET", "/things")


async def test_message_of_an_error_response_is_cut() -> None:
    text = json.dumps({"kind": "Status", "message": "x" * 100_000})
    async with serving_answers(answering(text, 403), 1_000_000) as server:
        with pytest.raises(ApiError) as caught:
            await server.request("GET", "/things")
    assert len(str(caught.value)) < 5000


@pytest.mark.parametrize(
    ("status", "retry_after", "sent"),
    [
        *((429, "0", 2), (429, "1", 2), (503, "1", 2), (500, "1", 2)),
        *((429, "11", 1), (429, "", 1), (429, "-1", 1), (429, "9" * 5000, 1), (503, "²", 1)),
        *((503, "Wed, 21 Oct 2026 07:28:00 GMT", 1), (404, "1", 1), (409, "1", 1)),
    ],
)
async def test_request_is_sent_again_when_the_server_asks_for_it_soon(
    status: int, retry_after: str, sent: int
) -> None:
    received = 0

    async def answer(_request: web.Request) -> web.Response:
        nonlocal received
        received += 1
        if received > 1:
            return web.json_response({"kind": "ThingList"})
        refusal = {"kind": "Status", "message": "later"}
        return web.json_response(refusal, status=status, headers={"Retry-After": retry_after})

    async with serving_answers(answer) as server:
        if sent == 2:
            assert await server.request("GET", "/things") == {"kind": "ThingList"}
        else:
            with pytest.raises(ApiError, match=f"{status}: later"):
                await server.request("GET", "/things")
        assert received == sent


async def test_retries_that_the_server_asks_for_end_with_the_time_limit() -> None:
    pauses = ["1", "9", "1"]

    async def refuse(_request: web.Request) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": pauses.pop(0)})

    async with serving_answers(refuse) as server:
        with pytest.raises(ApiError, match="429"):
            await server.request("GET", "/things", timeout=10)
    assert pauses == ["1"]


async def test_request_that_is_sent_again_ends_at_the_time_limit_of_the_first_one() -> None:
    received: list[float] = []

    async def answer(_request: web.Request) -> web.Response:
        received.append(time.monotonic())
        if len(received) > 1:
            await asyncio.sleep(30)
        return web.Response(status=429, headers={"Retry-After": "4"})

    async with serving_answers(answer) as server:
        with pytest.raises(Unreachable, match="no answer in time"):
            await server.request("GET", "/things", timeout=6)
        _, second = received
        # Two seconds are left. With a limit of its own, it would have six.
        assert time.monotonic() - second < 4


class SlowCredentials(StoredCredentials):
    """Credentials of a plugin that takes longer than the time limit of a request."""

    async def current(self) -> Credential:
        await asyncio.sleep(1.6)
        return Credential(f"Bearer {time.monotonic_ns()}")


async def test_time_of_a_credential_plugin_is_none_of_the_request() -> None:
    statuses = iter([401, 200])

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"kind": "Status"}, status=next(statuses))

    app = web.Application()
    app.router.add_get("/things", answer)
    async with TestServer(app) as served:
        access = Access(f"http://127.0.0.1:{served.port}", credentials=SlowCredentials())
        async with ApiServer(access) as server:
            assert await server.request("GET", "/things", timeout=1.5) == {"kind": "Status"}


async def test_redirects_without_an_end_are_named() -> None:
    async def answer(request: web.Request) -> web.Response:
        raise web.HTTPFound(request.path)

    async with serving_answers(answer) as server:
        with pytest.raises(Unreachable, match="GET /things: too many redirects"):
            await server.request("GET", "/things")


def things(count: int, text: str = "") -> list[dict[str, Any]]:
    return [{"metadata": {"name": f"thing-{number}"}, "x": text} for number in range(count)]


async def sizes_of_pages(objects: list[dict[str, Any]], max_response_bytes: int) -> list[int]:
    """Read objects in pages, and return the lengths of all answers."""
    sizes: list[int] = []

    async def answer(request: web.Request) -> web.Response:
        start = int(request.query.get("continue", "0"))
        end = start + int(request.query["limit"])
        following = {"continue": str(end)} if end < len(objects) else {}
        metadata = {"resourceVersion": "7", **following}
        response = web.json_response({"metadata": metadata, "items": objects[start:end]})
        sizes.append(response.content_length or 0)
        return response

    async with serving_answers(answer, max_response_bytes) as server:
        pages = [page async for page in server.pages("/things", "application/json")]
    assert [item for page in pages for item in page.items] == objects
    return sizes


async def test_page_that_is_too_large_is_requested_again_with_fewer_objects() -> None:
    assert max(await sizes_of_pages(things(100), 1000)) > 1000


async def test_pages_of_large_objects_stay_small() -> None:
    """A page is split in one iteration of the event loop, during which no review is answered."""
    sizes = await sizes_of_pages(things(1000, "x" * 15_000), 32 << 20)
    # The first answer has shown how many objects are too many.
    assert [size > 4 << 20 for size in sizes] == [True] + [False] * 4


async def test_a_few_large_objects_do_not_shrink_all_later_pages() -> None:
    objects = things(3000)
    for large in objects[700:703]:
        large["x"] = "x" * 1_500_000
    assert len(await sizes_of_pages(objects, 32 << 20)) < 50


@pytest.mark.parametrize(
    "event",
    [
        b"[]\n",
        b'{"type":"ADDED","object":null}\n',
        b'{"type":"ADDED","object":{"metadata":{}}}\n',
        b" " * 5_000_000,
    ],
    ids=["no event", "no object", "no version", "too long"],
)
async def test_reflector_lists_again_after_an_invalid_event(event: bytes) -> None:
    lists = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" not in request.query:
            lists += 1
            return web.json_response(PAGES["on"])
        response = web.StreamResponse()
        await response.prepare(request)
        if lists == 1:
            await response.write(event)
        await asyncio.Event().wait()
        return response

    async with serving_answers(answer) as server:
        listed = Reflector(server, "/things", name_of, lambda: None)
        running = asyncio.create_task(listed.run())
        await eventually(lambda: running.done() or lists == 2)
        assert not running.done()
        running.cancel()


async def test_reflector_has_the_objects_of_all_pages_and_trims_the_heap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trimmed = asyncio.Event()
    monkeypatch.setattr(reflector, "malloc_trim", trimmed.set)
    async with serving(PAGES) as server:
        listed = Reflector(server, "/things", name_of, lambda: None)
        async with supervise(listed.run), asyncio.timeout(30):
            await trimmed.wait()

    assert listed.synced.is_set()
    assert listed.objects == {"a": "a", "b": "b", "c": "c"}


async def test_request_timeout_takes_the_place_of_the_limit_of_the_caller() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        access = Access(f"http://127.0.0.1:{silent.getsockname()[1]}")
        limit = timedelta(milliseconds=100)
        async with (
            asyncio.timeout(60),
            ApiServer(access, request_timeout=limit) as server,
        ):
            with pytest.raises(Unreachable):
                await server.request("GET", "/version", timeout=3600)
