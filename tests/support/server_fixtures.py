"""The application without a socket, and a real server process with one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import httpx
import pytest

from tests.support.paths import EXAMPLES
from tests.support.process import RunningServer, start_server
from webhook.cluster.manifest_source import ManifestsSource
from webhook.core.admission.decide import OperatorSettings
from webhook.server import protocol
from webhook.server.app import create_app
from webhook.server.drain import Drain

LINGER_IMAGE = "registry.example/podsettle/linger:test"


@pytest.fixture(autouse=True)
def connections_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection to a server in this process is closed by chance."""
    monkeypatch.setattr(protocol, "GOAWAY_CHANCE", 0)


@pytest.fixture
def source() -> ManifestsSource:
    found = ManifestsSource(EXAMPLES)
    found.refresh()
    return found


@pytest.fixture
async def client(source: ManifestsSource) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application itself: every byte but those of TLS and the socket."""
    app = create_app(
        source,
        OperatorSettings(linger_image=LINGER_IMAGE),
        certificate_expires=lambda: datetime(2027, 1, 1, tzinfo=UTC),
        drain=Drain(idle_seconds=10, timeout_seconds=45),
    )
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="https://podsettle") as found:
        yield found
    await app.state.previewer.aclose()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with start_server(EXAMPLES, tmp_path_factory.mktemp("certs")) as found:
        yield found
