"""GET /livez, /readyz, /version, /openapi.json."""

from __future__ import annotations

import httpx
import pytest

from webhook import __version__
from webhook.cluster.manifest_source import ManifestsSource


async def test_probes_answer_ok(client: httpx.AsyncClient) -> None:
    assert (await client.get("/livez")).text == "ok"
    assert (await client.get("/readyz")).text == "ok"
    verbose = (await client.get("/readyz?verbose")).text
    assert verbose == "[+]manifests ok\n[+]shutdown ok\nreadyz check passed\n"


async def test_version_is_that_of_the_package(client: httpx.AsyncClient) -> None:
    assert (await client.get("/version")).json()["version"] == __version__


async def test_openapi_document_contains_all_routes_and_reasons(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    assert set(document["paths"]) >= {"/preview", "/livez", "/readyz", "/metrics", "/version"}
    reasons = document["components"]["schemas"]["Reason"]["enum"]
    assert "Applied" in reasons


async def test_invalid_manifest_is_reported_and_the_server_stays_ready(
    client: httpx.AsyncClient,
    source: ManifestsSource,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("manifests")
    (directory / "bad.yaml").write_text("kind: SettlePolicy\n")
    source.directory = directory
    source.refresh()
    answer = await client.get("/readyz?verbose")
    assert answer.status_code == 200
    assert f"[!]manifests {directory / 'bad.yaml'}:1: " in answer.text
    metrics = (await client.get("/metrics")).text.splitlines()
    count = next(line for line in metrics if line.startswith("podsettle_manifest_problems"))
    assert float(count.split()[1]) == len(source.problems) > 0
