"""Tests of redirects, authentication challenges and tokens of registries."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

import pytest
import trustme
from aiohttp import web

from tests.support.image_factories import APP, handler_of, unavailable_reason
from tests.support.image_fixtures import NewLookup
from tests.support.pull_secrets import Secrets, docker_config
from tests.support.registry import (
    PASSWORD,
    USER,
    Image,
    Server,
    basic,
    look_up,
    query,
    serving,
    start_server,
)
from webhook.images.lookup import ImageLookup

FORBIDDEN = "loopback, link-local or metadata address"
MAPPED = ip_address("::ffff:a9fe:a9fe")
"""Python 3.13 spells it `::ffff:169.254.169.254`."""


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (
            "https://169.254.169.254/latest",
            f"refusing to connect to '169.254.169.254': {FORBIDDEN}",
        ),
        ("https://[fe80::1]/", f"refusing to connect to '[fe80::1]': {FORBIDDEN}"),
        (f"https://[{MAPPED}]/", f"refusing to connect to '[{MAPPED}]': {FORBIDDEN}"),
        ("https://127.0.0.1/", f"refusing to connect to '127.0.0.1': {FORBIDDEN}"),
        ("https://127.0.0.1:1/", f"refusing to connect to '127.0.0.1:1': {FORBIDDEN}"),
        ("https://127.1/", "'127.1' is not a host"),
        ("https://2130706433/", "'2130706433' is not a host"),
        ("https://localhost:1/", f"'localhost:1': refusing to connect to localhost: {FORBIDDEN}"),
        ("http://SERVER/v2/a/blobs/x", "refusing to connect to 'SERVER' without TLS"),
        ("file:///etc/passwd", "refusing to connect to 'file:///etc/passwd' without TLS"),
        ("https://user:pw@SERVER/", "the registry redirects to a URL that contains credentials"),
        ("https://[::1", "the registry redirects to an invalid URL"),
        ("/v2/a/blobs/again", "the registry redirects more than 3 times"),
    ],
)
async def test_unsafe_redirect_is_not_followed(
    location: str, expected: str, ca: trustme.CA, image: Image, lookup: ImageLookup
) -> None:
    serve = serving(image)
    server = Server()

    async def handle(request: web.Request) -> web.StreamResponse:
        if "/blobs/" not in request.path:
            return await serve(request)
        to = location.replace("SERVER", server.host)
        return web.Response(status=307, headers={"Location": to})

    async with start_server(ca, handle) as started:
        server.host = started.host
        assert await unavailable_reason(lookup, started) == expected


async def test_redirect_to_another_host_carries_no_credentials(
    ca: trustme.CA, image: Image, new_lookup: NewLookup
) -> None:
    serve = serving(image)
    async with start_server(ca, serve) as storage:

        async def handle(request: web.Request) -> web.StreamResponse:
            if request.headers.get("Authorization") != basic("")["Authorization"]:
                return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
            if "/blobs/" in request.path:
                raise web.HTTPFound(f"https://{storage.host}{request.path}")
            return await serve(request)

        async with start_server(ca, handle) as server:
            auths = {server.host: (USER, PASSWORD), storage.host: (USER, PASSWORD)}
            lookup = new_lookup(Secrets(docker_config(auths)))
            asked = query(f"{server.host}/a:1", server.host, storage.host)
            assert await look_up(lookup, asked) == APP
            (request,) = storage.seen
            assert "Authorization" not in request.headers
            assert "Cookie" not in request.headers


@pytest.mark.parametrize(
    ("challenge", "expected"),
    [
        (
            'Bearer realm="https://169.254.169.254/t"',
            "refusing to connect to '169.254.169.254': loop",
        ),
        ('Bearer realm="http://SERVER/token/x"', "refusing to connect to 'SERVER' without TLS"),
        ('Bearer realm="/t"', "refusing to connect to '/t?scope=repository:a:pull' without TLS"),
        ('Bearer realm="https://[x"', "the registry names an invalid URL as token server"),
        ("Bearer", "the registry names an invalid URL as token server"),
        ('Basic realm="x"', "the registry answers 401"),
        ("Negotiate", "the registry answers 401"),
        ("", "the registry answers 401"),
    ],
)
async def test_unsafe_or_unsupported_challenge_is_not_answered(
    challenge: str, expected: str, ca: trustme.CA, lookup: ImageLookup
) -> None:
    server = Server()

    def challenged() -> web.Response:
        value = challenge.replace("SERVER", server.host)
        return web.Response(status=401, headers={"WWW-Authenticate": value})

    handler = handler_of(manifests=challenged)
    async with start_server(ca, handler) as started:
        server.host = started.host
        assert (await unavailable_reason(lookup, started)).startswith(expected)
        assert len(started.seen) == 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (web.Response, "the registry's token server sends no token"),
        (lambda: web.Response(text="[]"), "the registry's token server sends no token"),
        (lambda: web.Response(text='{"token": 5}'), "the registry's token server sends no token"),
        (lambda: web.Response(text='{"token": ""}'), "the registry's token server sends no token"),
        (lambda: web.json_response({"token": "a\r\nX: y"}), "the registry's token server sends no"),
        (lambda: web.json_response({"token": "x" * 70_000}), "the registry would send more than"),
        (lambda: web.Response(status=500), "the registry's token server answers 500"),
        (lambda: web.Response(status=403), "the registry's token server answers 403"),
        (lambda: web.Response(status=302), "the registry's token server answers 302"),
        (lambda: web.json_response({"token": "fine"}), "the registry answers 401"),
    ],
)  # fmt: skip
async def test_unusable_token_response_is_reported(
    answer: Callable[[], web.StreamResponse], expected: str, ca: trustme.CA, lookup: ImageLookup
) -> None:
    server = Server()

    def challenged() -> web.Response:
        value = f'Bearer realm="https://{server.host}/token/x",service="s",scope="wide"'
        return web.Response(status=401, headers={"WWW-Authenticate": value})

    async with start_server(ca, handler_of(manifests=challenged, token=answer)) as started:
        server.host = started.host
        assert (await unavailable_reason(lookup, started)).startswith(expected)
        token = next(request for request in started.seen if "token" in request.path)
        assert dict(token.query) == {"service": "s", "scope": "wide"}
