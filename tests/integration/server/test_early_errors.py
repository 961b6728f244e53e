"""HTTP errors for long bodies, which a client has to read although it is still sending."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.support.limited_server import limited_server
from tests.support.process import RunningServer, run
from tools.build import tool

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
REQUESTS = 20
JSON = "application/json"
LENGTH = 60 * MIB
LONG_QUERY = "?" + "x" * 60_000
CASES = {
    "reviews, too long": (False, "/mutate", JSON, "length", 413),
    "reviews, chunks": (False, "/mutate", JSON, "chunks", 411),
    "reviews, no JSON": (False, "/mutate", "text/plain", "length", 415),
    "reviews, no body": (False, "/livez", JSON, "length", 405),
    "reviews, other path": (False, "/preview", JSON, "length", 404),
    "reviews, chunks for another path": (False, "/preview", JSON, "chunks", 404),
    "reviews, too long head": (False, f"/mutate{LONG_QUERY}", JSON, "length", 431),
    "web, too long": (True, "/mutate", JSON, "length", 413),
    "web, too long chunks": (True, "/mutate", JSON, "chunks", 413),
    "web, no JSON": (True, "/mutate", "text/plain", "chunks", 415),
    "web, too long preview": (True, "/preview", JSON, "length", 413),
    "web, too long chunks of a preview": (True, "/preview", JSON, "chunks", 413),
    "web, no body": (True, "/readyz", JSON, "length", 405),
    "web, no route": (True, "/elsewhere", JSON, "chunks", 404),
    "web, too long head": (True, f"/preview{LONG_QUERY}", JSON, "length", 400),
}
"""The port, the path, the Content-Type, the framing, and the status of the answer."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with limited_server(tmp_path_factory.mktemp("certs")) as found:
        yield found


@pytest.mark.parametrize("name", CASES)
def test_error_for_a_long_body_is_read_by_a_go_client(server: RunningServer, name: str) -> None:
    check_go_client(server, *CASES[name], LENGTH)


def test_refused_token_is_read_by_a_go_client(tmp_path: Path) -> None:
    with limited_server(tmp_path, checks_tokens=True) as refusing:
        for length, framing in product((8 * MIB, LENGTH), ("length", "chunks")):
            check_go_client(refusing, True, "/preview", JSON, framing, 401, length)


def check_go_client(
    server: RunningServer,
    web: bool,
    path: str,
    content_type: str,
    framing: str,
    status: int,
    length: int,
) -> None:
    """Post bodies with Go's HTTP client, and check that it reads the same answer each time."""
    url = (server.web_url if web else server.url) + path
    command = [tool("poster"), server.ca, url, content_type, length, REQUESTS, framing]
    done = run(*command, check=True)
    answers = done.stdout.splitlines()
    assert len(answers) == REQUESTS
    assert [answer for answer in answers if not answer.startswith(f'{status} "')] == []
    assert len(set(answers)) == 1
