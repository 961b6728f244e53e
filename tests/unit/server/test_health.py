"""GET /readyz, /version and /openapi.json on the web port, and the log of readiness checks."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.server_fixtures import CERTIFICATE_EXPIRES
from tests.support.waiting import eventually
from webhook import __version__
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.cluster.source import Check
from webhook.server.connections.protocol import ReviewServer
from webhook.server.health import log_check_changes
from webhook.tasks import supervise


async def test_readiness_lists_the_checks(client: httpx.AsyncClient) -> None:
    answer = await client.get("/readyz")
    assert answer.json() == {
        "ready": True,
        "certificateExpires": CERTIFICATE_EXPIRES.isoformat().replace("+00:00", "Z"),
        "checks": [
            {"name": "manifests", "ready": True, "note": ""},
            {"name": "shutdown", "ready": True, "note": ""},
        ],
    }
    assert answer.headers["content-type"] == "application/json"


async def test_version_is_that_of_the_package_and_its_served_certificate(
    client: httpx.AsyncClient,
) -> None:
    found = (await client.get("/version")).json()
    assert found["version"] == __version__
    certificate = {"notAfter": CERTIFICATE_EXPIRES.isoformat(), "sha256": "ab" * 32}
    assert found["certificate"] == certificate


@pytest.mark.parametrize("path", ["/readyz", "/readyz?verbose", "/version"])
async def test_probe_with_head_has_the_status_of_get_and_no_body(
    path: str, client: httpx.AsyncClient
) -> None:
    answer = await client.head(path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == (await client.get(path)).headers["content-type"]


async def test_openapi_document_lists_the_page_and_only_statuses_that_occur(
    client: httpx.AsyncClient,
) -> None:
    document = (await client.get("/openapi.json")).json()
    assert "text/html" in document["paths"]["/"]["get"]["responses"]["200"]["content"]
    assert set(document["paths"]["/readyz"]["get"]["responses"]) == {"200", "503"}
    # The description that FastAPI gives to errors that these routes do not have.
    assert "HTTPValidationError" not in document["components"]["schemas"]


async def test_openapi_document_describes_every_error(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                words = response["description"].split()
                assert status == "200" or len(words) > 1, (path, status)


async def test_invalid_manifest_is_reported_and_the_server_stays_ready(
    client: httpx.AsyncClient,
    source: ManifestsSource,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("manifests")
    (directory / "bad.yaml").write_text("kind: SettlePolicy\n")
    source.paths = (directory,)
    source.refresh()
    answer = await client.get("/readyz?verbose")
    assert answer.status_code == 200
    (check, _) = answer.json()["checks"]
    assert check["ready"]
    assert check["note"].startswith(f"{directory / 'bad.yaml'}:1: ")
    metrics = (await client.get("/metrics")).text.splitlines()
    count = next(line for line in metrics if line.startswith("podsettle_manifest_problems"))
    assert float(count.split()[1]) == len(source.problems) > 0


async def test_thread_that_writes_the_metrics_does_not_read_what_the_event_loop_changes(
    client: httpx.AsyncClient, source: ManifestsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_in: list[threading.Thread] = []

    def record(kind: type, name: str, read: Callable[[Any], Any]) -> None:
        def recorded(self: Any) -> Any:
            read_in.append(threading.current_thread())
            return read(self)

        is_property = isinstance(vars(kind)[name], property)
        monkeypatch.setattr(kind, name, property(recorded) if is_property else recorded)

    record(ManifestsSource, "problems", type(source).problems.__get__)
    record(ReviewServer, "requests", ReviewServer.requests)
    assert (await client.get("/metrics")).status_code == 200
    assert len(read_in) >= 2
    assert set(read_in) == {threading.main_thread()}


async def test_each_change_of_a_check_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    ready = [Check("a", True), Check("b", True)]
    gone = [Check("a", True, "gone"), Check("b", True)]
    not_read = [Check("a", True), Check("b", False, "not read yet")]
    await log_of(caplog, not_read, gone, gone, ready, ready)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "not ready: b: not read yet"),
        ("WARNING", "a: gone"),
        ("INFO", "b: ok again"),
        ("INFO", "a: ok again"),
    ]


async def log_of(caplog: pytest.LogCaptureFixture, *polls: list[Check]) -> list[str]:
    """The lines for the checks at each poll."""
    left, done = list(polls), asyncio.Event()

    def checks() -> list[Check]:
        if len(left) == 1:
            done.set()
        return left.pop(0) if len(left) > 1 else left[0]

    with caplog.at_level(logging.INFO):
        async with (
            supervise(lambda: log_check_changes(checks, poll_seconds=0)),
            asyncio.timeout(30),
        ):
            await done.wait()
    return caplog.messages


OK, LOGGED = Check("a", True), Check("a", True, "404", logged=True)


@pytest.mark.parametrize(
    ("polls", "lines"),
    [
        ([LOGGED, LOGGED, OK], []),
        ([LOGGED._replace(ready=False)] * 2 + [OK], []),
        ([LOGGED, Check("a", False, "expired"), OK], ["not ready: a: expired", "a: ok again"]),
        (
            [*(Check("a", True, f"reset from port {number}") for number in range(40)), OK],
            ["a: reset from port 0", "a: reset from port 30", "a: ok again"],
        ),
        ([Check("a", True, "old"), LOGGED, OK], ["a: old", "a: ok again"]),
    ],
    ids=["logged", "logged, not ready", "unlogged after it", "at each 30th poll", "before it"],
)
async def test_problem_is_logged_unless_its_component_logs_it(
    polls: list[Check], lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert await log_of(caplog, *([each] for each in polls)) == lines


async def test_problem_of_a_manifest_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = ManifestsSource(tmp_path, poll_interval_seconds=0.01)
    file = tmp_path / "policy.yaml"
    with caplog.at_level(logging.INFO):
        async with (
            source.running(),
            supervise(lambda: log_check_changes(source.checks, poll_seconds=0)),
        ):
            file.write_text("kind: SettlePolicyList\n")
            await eventually(lambda: "did you mean" in caplog.text)
            file.unlink()
            await eventually(lambda: "manifests: changed; 0" in caplog.messages[-1])
    assert len([line for line in caplog.messages if "did you mean" in line]) == 1
