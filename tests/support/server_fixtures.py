"""The application without a socket, servers in this process, and a server process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.support.http_client import InProcess, in_process
from tests.support.paths import EXAMPLES
from tests.support.process import RunningServer, start_server
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.admission.decider import OperatorSettings
from webhook.server.app import create_app
from webhook.server.components import ClusterParts, Components
from webhook.server.drain import Drain
from webhook.server.limits import Limits, PreviewLimits

SETTINGS = OperatorSettings(linger_image="registry.example/podsettle/linger:0.2.0")


CERTIFICATE_EXPIRES = datetime.now(UTC).replace(microsecond=0) + timedelta(days=365)

UNHURRIED = PreviewLimits(deadline_seconds=600, queue_seconds=600)
"""The worker for previews has a low priority. Beside other busy processes, its start takes twenty
times as long as on a quiet machine."""
STEADY = Limits(goaway_chance=0, web_timeout_seconds=3600, preview=UNHURRIED)
"""The default limits, except that no answer closes its connection at random, and that previews have
time."""


def make_components(
    source: ManifestsSource,
    *,
    settings: OperatorSettings = SETTINGS,
    limits: Limits = STEADY,
    **options: Any,
) -> Components:
    """The components of a server whose certificate and shutdown do not end."""
    defaults: dict[str, Any] = {
        "certificates": SimpleNamespace(expires=CERTIFICATE_EXPIRES, fingerprint="ab" * 32),
        "drain": Drain(idle_seconds=3600, timeout_seconds=3600),
        "checks": source.checks,
        "running": source.running,
    }
    given = defaults | options
    parts = {name: given.pop(name) for name in ClusterParts._fields if name in given}
    return Components(ClusterParts(source, **parts), settings, limits=limits, **given)


def make_app(source: ManifestsSource, **options: Any) -> FastAPI:
    """An application with the components of `make_components`."""
    return create_app(make_components(source, **options))


@pytest.fixture
def serve(source: ManifestsSource) -> Iterator[Callable[..., InProcess]]:
    """Start servers in this process, each with other limits: `serve(header_timeout_seconds=1)`."""
    with ExitStack() as stack:

        def start(served: ManifestsSource = source, **limits: Any) -> InProcess:
            components = make_components(served, limits=replace(STEADY, **limits))
            return stack.enter_context(in_process(components))

        yield start


@pytest.fixture
def source() -> ManifestsSource:
    found = ManifestsSource(EXAMPLES)
    found.refresh()
    return found


@pytest.fixture
async def client(source: ManifestsSource) -> AsyncIterator[httpx.AsyncClient]:
    """A client that calls the application directly, without TLS and sockets."""
    transport = httpx.ASGITransport(make_app(source))
    async with httpx.AsyncClient(transport=transport, base_url="https://podsettle") as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with start_server(EXAMPLES, tmp_path_factory.mktemp("certs")) as found:
        yield found
