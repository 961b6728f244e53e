"""HTTP errors for long bodies, which clients have to read although they are still sending."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.limited_server import limited_server
from tests.support.process import RunningServer
from tests.support.waiting import TIMEOUT_SECONDS
from tools.build import poster

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
REQUESTS = 20
JSON = "application/json"
# The path, the Content-Type and the length of a request, and the status of the answer.
REFUSED = pytest.mark.parametrize(
    ("path", "content_type", "length", "status"),
    [
        ("/mutate", JSON, 60 * MIB, 413),
        ("/mutate", "text/plain", 60 * MIB, 415),
        ("/preview", JSON, 60 * MIB, 413),
        ("/livez", JSON, 60 * MIB, 405),
        ("/elsewhere", JSON, 60 * MIB, 404),
        (f"/preview?{'x' * 30_000}", JSON, 60 * MIB, 400),
    ],
    ids=["too long", "no JSON", "too long preview", "no body", "no route", "too long head"],
)
FRAMING = pytest.mark.parametrize("framing", ["length", "chunks"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with limited_server(tmp_path_factory.mktemp("certs")) as found:
        yield found


@pytest.fixture(
    scope="module",
    params=[({"checks_tokens": True}, 401), ({"max_handed_over": 0}, 503)],
    ids=["no token", "no place"],
)
def refusing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningServer, int]]:
    """A server that refuses previews, and the status of its answer."""
    options, status = request.param
    with limited_server(tmp_path_factory.mktemp("certs"), **options) as found:
        yield found, status


@REFUSED
@FRAMING
def test_error_for_a_long_body_is_read_by_a_go_client(
    server: RunningServer, path: str, content_type: str, length: int, status: int, framing: str
) -> None:
    check_go_client(server, path, content_type, length, framing, status)


@pytest.mark.parametrize("length", [8 * MIB, 60 * MIB])
@FRAMING
def test_refusal_of_a_preview_is_read_by_a_go_client(
    refusing: tuple[RunningServer, int], length: int, framing: str
) -> None:
    server, status = refusing
    check_go_client(server, "/preview", JSON, length, framing, status)


def check_go_client(
    server: RunningServer, path: str, content_type: str, length: int, framing: str, status: int
) -> None:
    """Post bodies with Go's HTTP client, and check that it reads the same answer each time."""
    command = [poster(), server.ca, server.url + path, content_type, length, REQUESTS, framing]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True
    )
    answers = done.stdout.splitlines()
    assert len(answers) == REQUESTS
    assert [answer for answer in answers if not answer.startswith(f'{status} "')] == []
    assert len(set(answers)) == 1


@pytest.mark.needs("curl")
@REFUSED
@FRAMING
@pytest.mark.parametrize("expect", ["", "100-continue"])
def test_error_for_a_long_body_is_read_by_curl(
    server: RunningServer,
    tmp_path: Path,
    path: str,
    content_type: str,
    length: int,
    status: int,
    framing: str,
    expect: str,
) -> None:
    body = tmp_path / "body"
    with body.open("w") as file:
        file.truncate(length)
    headers = [f"Content-Type: {content_type}", f"Expect: {expect}" if expect else "Expect:"]
    if framing == "chunks":
        headers.append("Transfer-Encoding: chunked")
    done = subprocess.run(
        [
            *("curl", "--silent", "--show-error", "--http1.1", "--cacert", server.ca),
            *("--write-out", "\n%{http_code}", "--request", "POST", "--upload-file", body),
            *(part for header in headers for part in ("--header", header)),
            server.url + path,
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text, _, answered = done.stdout.rpartition("\n")
    assert int(answered) == status
    assert text
