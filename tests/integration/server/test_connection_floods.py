"""Clients that open many connections or handshakes to either port of a server process, over TLS.

A timeout that ends the abuse is a keyword of `limited_server`. All other timeouts are an hour, and
the tests without a keyword share a server. Reviews of other clients are answered meanwhile, and the
memory of the process stays below the chart's limit. A limit that also applies to those clients is
seconds, because a busy machine can stop them for that long.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.hostile_clients import crowd, file_limit
from tests.support.http_client import Client
from tests.support.limited_server import MIB, limited_server, peak_memory_bytes
from tests.support.process import RunningServer
from tests.support.review_load import WHOLE, sending_reviews
from tests.support.waiting import await_that, repeating
from webhook.server.limits import DEFAULT_LIMITS

pytestmark = pytest.mark.slow

FILES = 3 * DEFAULT_LIMITS.max_connections + 1000
"""The limit on the test's own open files."""
USUAL_FILES = 1024
"""The limit with which many systems start a process. The server has to raise it."""
OTHERS = 2
"""The connections of the clients that send reviews meanwhile."""
LAST = WHOLE.replace(b"Host: x", b"Host: x\r\nConnection: close")
BOTH_PORTS = pytest.mark.parametrize("web", [False, True], ids=["reviews", "web"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with ExitStack() as stack:
        with file_limit(USUAL_FILES):
            found = stack.enter_context(limited_server(tmp_path_factory.mktemp("certs")))
        yield found


def long_client_hello() -> bytes:
    """Return most of the longest first message that OpenSSL accepts: it keeps 128 KiB for it."""
    message = b"\x01" + (131_000).to_bytes(3, "big") + b"\x03\x03" + bytes(130_000)
    pieces = [message[at : at + 16_384] for at in range(0, len(message), 16_384)]
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def _head(path: str, headers: int, length: int) -> bytes:
    """Return a request without a body."""
    size = (length - 100) // headers - len(b"X: \r\n")
    return b"GET %b HTTP/1.1\r\nHost: x\r\n%b\r\n" % (
        path.encode(),
        (b"X: " + b"x" * size + b"\r\n") * (headers - 1),
    )


@BOTH_PORTS
def test_idle_connections_are_ended_by_the_connection_limit(
    server: RunningServer, web: bool
) -> None:
    """The connection whose last answer is the oldest is closed for a new one."""
    limit = DEFAULT_LIMITS.max_web_connections if web else DEFAULT_LIMITS.max_connections
    with (
        file_limit(FILES),
        sending_reviews(server) as others,
        crowd(server, web=web) as idle,
    ):
        idle.connect_silently(2 * limit, b"" if web else WHOLE)
        idle.await_open(limit)
        left = idle.open()
        assert len(left) >= limit - OTHERS
        assert idle.sockets.index(left[0]) >= limit
        others.await_answers()
        with server.client() as client:
            assert client.get("/version" if web else "/livez").status_code == 200


def test_connections_that_clients_do_not_close_are_ended_by_their_limit(
    server: RunningServer,
) -> None:
    with (
        file_limit(FILES),
        sending_reviews(server) as others,
        crowd(server) as closing,
    ):
        closing.connect_silently(2 * DEFAULT_LIMITS.max_closing, LAST)
        closing.await_open(DEFAULT_LIMITS.max_closing)
        others.await_answers()


@BOTH_PORTS
@pytest.mark.parametrize(
    ("headers", "length"),
    [(985, 64 * 1024), (100, 24 * 1024)],
    ids=["too long heads", "longest heads"],
)
def test_long_heads_occupy_little_memory_and_delay_no_review(
    tmp_path: Path, web: bool, headers: int, length: int
) -> None:
    """On a busy machine, the bar for the delay follows the slowest review without a flood.

    The server is one of its own, because the peak of a shared one is that of all floods.
    """
    head = _head("/" if web else "/livez", headers, length)
    with (
        limited_server(tmp_path) as server,
        file_limit(FILES),
        sending_reviews(server) as others,
        crowd(server, web=web) as half_open,
        crowd(server, web=web) as heads,
    ):
        others.await_answers(100)
        bar_seconds = max(0.5, 5 * others.slowest_seconds)
        half_open.open_plain(DEFAULT_LIMITS.max_handshakes, long_client_hello())
        slowest = []
        for _ in range(2):  # What the first flood leaves in memory, the second one must not add to.
            others.slowest_seconds = 0
            heads.connect_silently(998, head)
            others.await_answers()
            heads.close()
            slowest.append(others.slowest_seconds)
        assert min(slowest) <= bar_seconds, "one pause may be the machine's, not one in each flood"
        assert peak_memory_bytes(server) <= 300 * MIB


def test_idle_connections_are_ended_by_the_idle_timeout(tmp_path: Path) -> None:
    with (
        limited_server(tmp_path, idle_timeout_seconds=5) as server,
        sending_reviews(server) as others,
        crowd(server) as idle,
    ):
        idle.connect_silently(200)
        idle.connect_silently(200, WHOLE)
        others.await_answers()
        idle.await_open(0)


# Handshakes


def client_hello() -> bytes:
    """Return the first message of a TLS handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@BOTH_PORTS
@pytest.mark.parametrize(
    "first", [b"", b"\x16\x03\x01\x40\x00", client_hello()], ids=["silent", "record", "hello"]
)
def test_half_open_handshakes_are_limited_by_their_number(
    server: RunningServer, first: bytes, web: bool
) -> None:
    limit = DEFAULT_LIMITS.max_web_handshakes if web else DEFAULT_LIMITS.max_handshakes
    with (
        file_limit(FILES),
        sending_reviews(server) as others,
        crowd(server, web=web) as half_open,
    ):
        half_open.open_plain(3 * limit, first)
        half_open.await_open(limit)
        others.await_answers()


@BOTH_PORTS
def test_garbage_after_the_handshake_ends_its_connection(server: RunningServer, web: bool) -> None:
    with (
        sending_reviews(server) as others,
        crowd(server, web=web) as clients,
    ):
        clients.connect_silently(150)
        for found in clients.sockets:
            found.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        clients.await_open(0)
        others.await_answers()


@BOTH_PORTS
def test_handshakes_without_end_do_not_keep_out_reviews(server: RunningServer, web: bool) -> None:
    context = ssl.create_default_context(cafile=server.ca)
    made: list[None] = []

    def renew() -> None:
        with suppress(OSError):
            Client(("127.0.0.1", server.web_port if web else server.port), context).close()
            made.append(None)

    with sending_reviews(server) as others, repeating(*[renew] * 4, pause_seconds=0) as failed:
        await_that(lambda: len(made) > 300, "handshakes are complete")
        others.await_answers()
    assert not failed
