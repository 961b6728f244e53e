"""Tests of registries behind a proxy: HTTPS_PROXY and NO_PROXY."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
import trustme
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from tests.support.image_factories import APP
from tests.support.image_fixtures import NewLookup
from tests.support.process import free_port
from tests.support.recording_server import RecordingProxy
from tests.support.recording_server import serving as in_threads
from tests.support.registry import Image, look_up, query, serving, start_server
from webhook.core.images import Unavailable
from webhook.images.http_session import SsrfSafeResolver
from webhook.images.proxy import Proxy

NAME = "registry.test"
"""A host name that only the proxy of the tests can resolve."""


@asynccontextmanager
async def start_proxy(
    refusal: int = 0, context: ssl.SSLContext | None = None
) -> AsyncIterator[RecordingProxy]:
    """Run a proxy that resolves every name to the loopback address."""
    proxy = RecordingProxy(context, refusal)
    with in_threads(proxy):
        yield proxy


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("user", "authorization"),
    [("", ""), ("me:p%40ss@", "Basic " + base64.b64encode(b"me:p@ss").decode())],
)
async def test_request_goes_through_the_proxy_which_resolves_the_name(
    user: str,
    authorization: str,
    ca: trustme.CA,
    image: Image,
    new_lookup: NewLookup,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with start_server(ca, serving(image), NAME) as server, start_proxy() as proxy:
        port = server.host.rpartition(":")[2]
        monkeypatch.setenv("HTTPS_PROXY", f"http://{user}127.0.0.1:{proxy.port}")
        assert await look_up(new_lookup(), query(f"{NAME}:{port}/a:1")) == APP
        assert set(proxy.asked) == {(f"{NAME}:{port}", authorization)}


async def test_https_proxy_with_its_own_certificate_is_used(
    ca: trustme.CA, image: Image, new_lookup: NewLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    async with (
        start_server(ca, serving(image), NAME) as server,
        start_proxy(context=context) as proxy,
    ):
        target = f"{NAME}:{server.host.rpartition(':')[2]}"
        monkeypatch.setenv("HTTPS_PROXY", f"https://127.0.0.1:{proxy.port}")
        assert await look_up(new_lookup(), query(f"{target}/a:1")) == APP
        assert {each for each, _ in proxy.asked} == {target}


async def test_hosts_in_no_proxy_are_connected_to_directly(
    ca: trustme.CA, image: Image, new_lookup: NewLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_server(ca, serving(image), NAME) as server, start_proxy() as proxy:
        port = server.host.rpartition(":")[2]
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", "10.0.0.0/8, .test")
        answer = await look_up(new_lookup(), query(f"{NAME}:{port}/a:1"))
        assert isinstance(answer, Unavailable)
        assert "the proxy" not in answer.why
        # A loopback address needs no entry in NO_PROXY.
        assert await look_up(new_lookup(), query(f"{server.host}/a:1")) == APP
        assert proxy.asked == []


async def test_forbidden_address_is_not_requested_through_a_proxy(
    new_lookup: NewLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_proxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        answer = await look_up(new_lookup(), query("169.254.169.254/a:1", "*"))
        assert answer == Unavailable(
            "169.254.169.254/a:1: refusing to connect to '169.254.169.254': "
            "loopback, link-local or metadata address"
        )
        assert proxy.asked == []


async def test_error_of_the_proxy_is_reported_as_such(
    new_lookup: NewLookup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_proxy(407) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        answer = await look_up(new_lookup(), query(f"{NAME}/a:1"))
    assert answer == Unavailable(
        f"{NAME}/a:1: '{NAME}': podsettle gets no answer; its log has the cause"
    )
    assert f"'{NAME}': the proxy answers 407" in caplog.text
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{free_port()}")
    answer = await look_up(new_lookup(), query(f"{NAME}/a:1"))
    assert answer == Unavailable(f"{NAME}/a:1: '{NAME}': the proxy: Connection refused")


@pytest.mark.parametrize(
    "value", ["socks5://me:hidden@p:1080", "http://", "http://me:hidden@p:x", "http://p:0"]
)
async def test_invalid_proxy_url_is_reported_without_its_password(
    value: str, new_lookup: NewLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    assert await look_up(new_lookup(), query(f"{NAME}/a:1")) == Unavailable(
        f"{NAME}/a:1: HTTPS_PROXY is not a URL such as http://proxy.example:3128"
    )


async def test_proxy_host_may_have_a_forbidden_address() -> None:
    """The operator chooses the proxy. Users choose the names of images."""
    checking = SsrfSafeResolver(ThreadedResolver(), unchecked_host="localhost")
    assert [each["host"] for each in await checking.resolve("localhost")]
    with pytest.raises(OSError, match="refusing to connect"):
        await SsrfSafeResolver(ThreadedResolver(), unchecked_host="other").resolve("localhost")


def proxy_of(**environment: str) -> Proxy | None:
    return Proxy.from_environment(environment)


def test_no_proxy_is_used_without_https_proxy() -> None:
    assert proxy_of() is None
    assert proxy_of(HTTPS_PROXY="", NO_PROXY="*") is None
    assert proxy_of(HTTP_PROXY="http://p:1") is None


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("http://p.example:3128", "http://p.example:3128"),
        ("p.example:3128", "http://p.example:3128"),
        ("http://p.example", "http://p.example:80"),
        ("https://p.example/", "https://p.example:443"),
        ("http://[fd00::1]:3128", "http://[fd00::1]:3128"),
    ],
)
def test_proxy_url_gets_default_scheme_and_port(value: str, url: str) -> None:
    found = proxy_of(https_proxy=value)
    assert found is not None
    wanted = URL(url)
    assert (found.url.scheme, found.url.host, found.url.port) == (
        wanted.scheme, wanted.host, wanted.port
    )  # fmt: skip
    assert found.headers == {}


@pytest.mark.parametrize(
    ("no_proxy", "direct", "proxied"),
    [
        ("", ["localhost", "127.0.0.1", "[::1]"], ["a.example", "10.0.0.1"]),
        ("*", ["a.example", "10.0.0.1"], []),
        ("x,*", ["a.example"], []),
        ("example", ["example", "a.example", "A.EXAMPLE", "b.a.example"], ["anexample", "x.test"]),
        (".example", ["a.example"], ["example"]),
        ("*.example", ["a.example"], ["example", "anexample"]),
        ("10.0.0.0/8, 192.0.2.7", ["10.1.2.3", "192.0.2.7"], ["192.0.2.8", "a.example"]),
        ("fd00::/8", ["[fd00::1]", "[fd00::1]:5000"], ["[2001:db8::1]"]),
        ("[fd00::1]:5000", ["[fd00::1]:5000"], ["[fd00::1]"]),
        ("::ffff:10.0.0.1", ["10.0.0.1"], ["10.0.0.2"]),
        ("a.example:5000", ["a.example:5000"], ["a.example"]),
        ("10.0.0.1:443", ["10.0.0.1"], ["10.0.0.1:5000"]),
        ("10.0.0.0/33,,.,*.,a b", [], ["10.0.0.1", "a.example"]),
    ],
)  # fmt: skip
def test_no_proxy_selects_direct_hosts_as_in_go(
    no_proxy: str, direct: Iterable[str], proxied: Iterable[str]
) -> None:
    """The cases of golang.org/x/net/http/httpproxy."""
    proxy = proxy_of(HTTPS_PROXY="http://p:1", NO_PROXY=no_proxy)
    assert proxy is not None
    assert [host for host in direct if proxy.is_used_for(URL(f"https://{host}/v2/"))] == []
    assert [host for host in proxied if not proxy.is_used_for(URL(f"https://{host}/v2/"))] == []
