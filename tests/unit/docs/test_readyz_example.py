"""The example of /readyz?verbose in docs/http.md has the texts that the server gives."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import trustme
from fastapi import FastAPI

from tests.support.markdown import Page
from tests.support.paths import DOCS
from tests.support.process import free_port
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import Unreachable
from webhook.cluster.readiness import Readiness
from webhook.cluster.source import Check
from webhook.kubeconfig.access import Access
from webhook.server.drain import Drain
from webhook.server.health import health_router
from webhook.tls.certificate_directory import CertificateDirectory
from webhook.tls.file_source import FileSource


def example() -> str:
    section = Page(DOCS / "http.md").sections["Probes"]
    found = re.search(r"```json\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def notes() -> dict[str, str]:
    return {each.name: each.note for each in Readiness.model_validate_json(example()).checks}


async def test_example_is_an_answer_of_the_route() -> None:
    shown = Readiness.model_validate_json(example())
    checks = [Check(each.name, each.ready, each.note) for each in shown.checks]
    app = FastAPI()
    served: Any = SimpleNamespace(expires=shown.certificate_expires)
    app.include_router(health_router(lambda: checks, served))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="https://podsettle") as client:
        answer = await client.get("/readyz?verbose")
    assert answer.status_code == 503
    assert answer.text == example()


async def test_lost_api_server_is_described_as_in_the_example() -> None:
    access = Access(f"http://127.0.0.1:{free_port()}")
    async with ApiServer(access) as server:
        with pytest.raises(Unreachable) as caught:
            await server.page("/api/v1/namespaces?limit=250", "application/json")
    text = re.sub(r"\?\S+: ", "?…: ", str(caught.value))
    assert re.sub(r"127\.0\.0\.1:\d+", "10.96.0.1:443", text) == notes()["namespaces"]


def test_expired_certificate_is_described_as_in_the_example(tmp_path: Path) -> None:
    leaf = trustme.CA().issue_cert("x", not_after=datetime.now(UTC) - timedelta(days=1))
    leaf.private_key_pem.write_to_path(tmp_path / "tls.key")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    problem = FileSource(CertificateDirectory(tmp_path)).problem
    time = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00")
    shown = problem.replace(str(tmp_path), "/etc/podsettle/tls")
    assert time.sub("", shown) == time.sub("", notes()["certificate"])
    assert time.search(notes()["certificate"])


def test_shutdown_is_a_check_of_the_example() -> None:
    assert Drain(0, 0).check().name in notes()
