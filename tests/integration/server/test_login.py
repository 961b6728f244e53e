"""The preview page in a browser, on a server that requires tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.authorizer import Known
from tests.support.chromium import Chromium, start_chromium
from tests.support.http_client import InProcess, in_process
from tests.support.server_fixtures import make_app
from webhook.cluster.manifest_source import ManifestsSource
from webhook.server.drain import Drain

pytestmark = pytest.mark.xdist_group("chromium")


@pytest.fixture
def server(source: ManifestsSource) -> Iterator[InProcess]:
    drain = Drain(idle_seconds=3600, timeout_seconds=3600)
    app = make_app(source, drain, authorizer=Known())
    with in_process(app, drain) as running:
        yield running


@pytest.fixture
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with start_chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


def answer_on(page: Chromium) -> str:
    page.click("#preview")
    page.wait_for("document.querySelector('.pod, #error:not([hidden])')")
    return page.text("#results") + page.text("#error")


def test_token_from_the_browsers_dialog_is_used_for_previews(
    server: InProcess, chromium: Chromium
) -> None:
    host, port = server.address
    # The URL replaces the browser's own dialog, which a driver cannot operate.
    chromium.open(f"https://me:good@{host}:{port}/")
    chromium.open(f"https://{host}:{port}/")
    chromium.paste("#workload", json.dumps({"kind": "Pod", "apiVersion": "v1", "spec": {}}))
    assert "The server" not in answer_on(chromium)


def test_token_in_the_pages_field_replaces_the_browsers(
    server: InProcess, chromium: Chromium
) -> None:
    host, port = server.address
    chromium.open(f"https://me:good@{host}:{port}/")
    chromium.open(f"https://{host}:{port}/")
    chromium.paste("#workload", json.dumps({"kind": "Pod", "apiVersion": "v1", "spec": {}}))
    chromium.paste("#token", "poor")
    assert "The token does not allow previews (403" in answer_on(chromium)
    assert "kubectl create clusterrole" in chromium.text("#error")
