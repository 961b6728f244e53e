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
    Handler,
    Image,
    Server,
    basic,
    digest_of,
    look_up,
    query,
    serving,
    start_server,
)
from webhook.core.images import Unavailable
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

    async def handle(request: web.Request) -> web.StreamResponse:
        if "/blobs/" not in request.path:
            return await serve(request)
        to = location.replace("SERVER", server.host)
        return web.Response(status=307, headers={"Location": to})

    async with start_server(ca, handle) as server:
        assert await unavailable_reason(lookup, server) == expected


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
    ("location", "target"),
    [
        ("https://SERVER/b/x?a=%2F%3A%24%40%2c%7E&b=+", "/b/x?a=%2F%3A%24%40%2c%7E&b=+"),
        ("/b/a%2Fb%7e?Signature=fW~_&Key-Pair-Id=K", "/b/a%2Fb%7e?Signature=fW~_&Key-Pair-Id=K"),
        ("?a=%2F", "/v2/a/blobs/DIGEST?a=%2F"),
        ("https://SERVER/b/é?a=ü b", "/b/%C3%A9?a=%C3%BC+b"),
    ],
)
async def test_redirect_is_followed_as_it_is_written_because_it_can_be_signed(
    location: str, target: str, ca: trustme.CA, image: Image, lookup: ImageLookup
) -> None:
    serve = serving(image)
    digest = digest_of(image.blobs[0])

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/b/") or request.query_string:
            return web.Response(body=image.blobs[0])
        if "/blobs/" in request.path:
            to = location.replace("SERVER", server.host)
            return web.Response(status=307, headers={"Location": to})
        return await serve(request)

    async with start_server(ca, handle) as server:
        assert await look_up(lookup, query(f"{server.host}/a:1")) == APP
        assert server.seen[-1].raw_path == target.replace("DIGEST", digest)


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

    def challenged() -> web.Response:
        value = challenge.replace("SERVER", server.host)
        return web.Response(status=401, headers={"WWW-Authenticate": value})

    handler = handler_of(manifests=challenged)
    async with start_server(ca, handler) as server:
        assert (await unavailable_reason(lookup, server)).startswith(expected)
        assert len(server.seen) == 1


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

    def challenged() -> web.Response:
        value = f'Bearer realm="https://{server.host}/token/x",service="s",scope="wide"'
        return web.Response(status=401, headers={"WWW-Authenticate": value})

    async with start_server(ca, handler_of(manifests=challenged, token=answer)) as server:
        assert (await unavailable_reason(lookup, server)).startswith(expected)
        token = next(request for request in server.seen if "token" in request.path)
        assert dict(token.query) == {"service": "s", "scope": "wide"}


class GuardedRegistry:
    """A registry, with its token server, that refuses every request without one of its tokens."""

    def __init__(self, image: Image, token: str, *, scope: str = "") -> None:
        self.token = token
        self.host = ""
        """The address of the registry, which a test sets."""
        self.token_host = ""
        """The address of its token server, which a test sets."""
        self.token_requests: list[web.Request] = []
        self._scope = f',scope="{scope}"' if scope else ""
        self._serve = serving(image)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") == f"Bearer {self.token}":
            return await self._serve(request)
        realm = f'Bearer realm="https://{self.token_host}/token",service="s"{self._scope}'
        return web.Response(status=401, headers={"WWW-Authenticate": realm})

    async def issue_token(self, request: web.Request) -> web.StreamResponse:
        self.token_requests.append(request)
        return web.json_response({"token": self.token})


def redirecting_to(other: Server, guard: GuardedRegistry, *kinds: str) -> Handler:
    """Return a handler that redirects authorized requests for `kinds` to another registry."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = await guard.answer(request)
        if response.status == 200 and any(f"/{kind}/" in request.path for kind in kinds):
            raise web.HTTPTemporaryRedirect(f"https://{other.host}{request.path}")
        return response

    return handle


@pytest.mark.parametrize("kinds", [("manifests", "blobs"), ("manifests",), ("blobs",)])
@pytest.mark.parametrize("scope", ["", "repository:other:pull"])
async def test_registry_behind_a_redirect_gets_a_token_of_its_own_without_the_credentials(
    kinds: tuple[str, ...], scope: str, ca: trustme.CA, image: Image, new_lookup: NewLookup
) -> None:
    first, second = GuardedRegistry(image, "one"), GuardedRegistry(image, "two", scope=scope)
    async with (
        start_server(ca, first.issue_token) as first_tokens,
        start_server(ca, second.issue_token) as second_tokens,
        start_server(ca, second.answer) as other,
        start_server(ca, redirecting_to(other, first, *kinds)) as server,
    ):
        first.token_host, second.token_host = first_tokens.host, second_tokens.host
        auths = dict.fromkeys((server.host, other.host, second_tokens.host), (USER, PASSWORD))
        lookup = new_lookup(Secrets(docker_config(auths)))
        hosts = [each.host for each in (server, other, first_tokens, second_tokens)]
        assert await look_up(lookup, query(f"{server.host}/a:1", *hosts)) == APP
        (with_credentials,) = first.token_requests
        assert with_credentials.headers["Authorization"] == basic("")["Authorization"]
        (anonymous,) = second.token_requests
        assert "Authorization" not in anonymous.headers
        assert dict(anonymous.query) == {"service": "s", "scope": scope or "repository:a:pull"}
        sent = {request.headers.get("Authorization") for request in other.seen}
        assert sent == {None, "Bearer two"}
        assert {request.headers.get("Authorization") for request in server.seen} == {
            None, "Bearer one"
        }  # fmt: skip


async def test_token_server_behind_a_redirect_gets_no_credentials(
    ca: trustme.CA, image: Image, new_lookup: NewLookup
) -> None:
    """containerd and containers/image follow such a redirect too, as Go's HTTP client does."""
    guard = GuardedRegistry(image, "one")

    async def redirect(request: web.Request) -> web.StreamResponse:
        if request.path == "/token":
            raise web.HTTPTemporaryRedirect(f"/moved?{request.query_string}")
        raise web.HTTPFound(f"https://{tokens.host}/token?{request.query_string}")

    async with (
        start_server(ca, guard.issue_token) as tokens,
        start_server(ca, redirect) as redirecting,
        start_server(ca, guard.answer) as server,
    ):
        guard.token_host = redirecting.host
        hosts = [each.host for each in (server, redirecting, tokens)]
        lookup = new_lookup(Secrets(docker_config(dict.fromkeys(hosts, (USER, PASSWORD)))))
        assert await look_up(lookup, query(f"{server.host}/a:1", *hosts)) == APP
        assert [each.path for each in redirecting.seen] == ["/token", "/moved"]
        assert all(each.headers.get("Authorization") for each in redirecting.seen)
        (token_request,) = guard.token_requests
        assert "Authorization" not in token_request.headers
        assert dict(token_request.query) == {"service": "s", "scope": "repository:a:pull"}


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/token", "the registry's token server redirects more than 3 times"),
        ("https://169.254.169.254/t", "refusing to connect to '169.254.169.254'"),
        ("https://u:p@example.com/t", "the registry redirects to a URL that contains credentials"),
        ("http://example.com/t", "refusing to connect to 'example.com' without TLS"),
        ("https://[x", "the registry redirects to an invalid URL"),
    ],
)
async def test_redirect_of_a_token_server_leads_to_no_forbidden_address(
    location: str, expected: str, ca: trustme.CA, image: Image, lookup: ImageLookup
) -> None:
    guard = GuardedRegistry(image, "one")

    async def redirect(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": location})

    async with start_server(ca, redirect) as tokens, start_server(ca, guard.answer) as server:
        guard.token_host = tokens.host
        answer = await look_up(lookup, query(f"{server.host}/a:1", server.host, tokens.host))
        assert isinstance(answer, Unavailable)
        assert expected in answer.why
        assert len(tokens.seen) <= 4


async def test_storage_behind_two_redirects_gets_no_token(
    ca: trustme.CA, image: Image, lookup: ImageLookup
) -> None:
    second = GuardedRegistry(image, "two")
    async with (
        start_server(ca, serving(image)) as storage,
        start_server(ca, second.issue_token) as tokens,
        start_server(ca, redirecting_to(storage, second, "blobs")) as other,
    ):

        async def redirect(request: web.Request) -> web.StreamResponse:
            raise web.HTTPTemporaryRedirect(f"https://{other.host}{request.path}")

        second.token_host = tokens.host
        async with start_server(ca, redirect) as server:
            hosts = [each.host for each in (server, other, tokens, storage)]
            assert await look_up(lookup, query(f"{server.host}/a:1", *hosts)) == APP
        assert len(second.token_requests) == 1
        (blob,) = storage.seen
        assert "Authorization" not in blob.headers


@pytest.mark.parametrize(
    ("challenge", "expected"),
    [
        ('Basic realm="x"', "the registry answers 401"),
        ("", "the registry answers 401"),
        ('Bearer realm="https://169.254.169.254/t"', "refusing to connect to '169.254.169.254'"),
        ('Bearer realm="https://localhost:1/t"', "'localhost:1': refusing to connect to localhost"),
        ('Bearer realm="http://SERVER/t"', "refusing to connect to 'SERVER' without TLS"),
    ],
)
async def test_challenge_behind_a_redirect_leads_to_no_forbidden_address(
    challenge: str, expected: str, ca: trustme.CA, new_lookup: NewLookup
) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        value = challenge.replace("SERVER", request.host)
        return web.Response(status=401, headers={"WWW-Authenticate": value})

    async with start_server(ca, refuse) as other:

        async def redirect(request: web.Request) -> web.StreamResponse:
            raise web.HTTPTemporaryRedirect(f"https://{other.host}{request.path}")

        async with start_server(ca, redirect) as server:
            auths = dict.fromkeys((server.host, other.host), (USER, PASSWORD))
            lookup = new_lookup(Secrets(docker_config(auths)))
            answer = await look_up(lookup, query(f"{server.host}/a:1", server.host, other.host))
            assert isinstance(answer, Unavailable)
            why = answer.why.removeprefix(f"{server.host}/a:1: ").replace(other.host, "SERVER")
            assert why.startswith(expected)
            assert all("Authorization" not in request.headers for request in other.seen)
            assert len(other.seen) == 1


async def test_registry_that_redirects_to_ever_new_challenges_is_asked_a_bounded_number_of_times(
    ca: trustme.CA, image: Image, lookup: ImageLookup
) -> None:
    guard = GuardedRegistry(image, "never")

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path == "/token":
            return web.json_response({"token": f"t{len(server.seen)}"})
        if request.headers.get("Authorization"):
            raise web.HTTPTemporaryRedirect(f"https://{server.host}/v2/a/manifests/next")
        return await guard.answer(request)

    async with start_server(ca, handle) as server:
        guard.token_host = server.host
        assert await unavailable_reason(lookup, server) == (
            "the registry redirects more than 3 times"
        )
        assert len(server.seen) < 10
