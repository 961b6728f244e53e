"""A uvicorn server on an event loop that a test controls, and the cluster that it sees."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from tests.support.byte_streams import UNKNOWN_NAMESPACE
from tests.support.paths import EXAMPLES
from tests.support.reviews import PODS, load_pod
from webhook.cluster.access_decision import Access, AccessDecision
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.cluster.source import Check, NamespaceLookup
from webhook.core.cluster.view import Namespace
from webhook.core.policy.validation_errors import ManifestProblem


class LookupSource:
    """The examples, with a namespace that the view contains only while its look-up is new."""

    title = "examples"
    problems: tuple[ManifestProblem, ...] = ()

    def __init__(self) -> None:
        source = ManifestsSource(EXAMPLES)
        source.refresh()
        names = {load_pod(path)["metadata"].get("namespace", "default") for path in PODS}
        known = {name: Namespace(name, {"team": "ci"}) for name in sorted(names)}
        known |= source.view.namespaces
        self.view = replace(source.view, namespaces=known, invents_namespaces=False)
        self._known = self.view
        self._found = Namespace(UNKNOWN_NAMESPACE, {"team": "ci"})
        all_namespaces = {**known, UNKNOWN_NAMESPACE: self._found}
        self._complete = replace(self._known, namespaces=all_namespaces)

    def checks(self) -> Iterator[Check]:
        yield Check("examples", ready=True)

    def running(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def fetch_namespace(self, name: str, _client: str, _seconds: float) -> NamespaceLookup:
        for _ in range(3):
            await asyncio.sleep(0)
        if name != UNKNOWN_NAMESPACE:
            return NamespaceLookup.MISSING
        self.view = self._complete
        asyncio.get_running_loop().call_soon(self._forget)
        return NamespaceLookup.FOUND

    def _forget(self) -> None:
        self.view = self._known


class NoAccess:
    """An authorizer that accepts no token."""

    async def authorize(self, _token: str, _verb: str, _path: str, _client: str) -> AccessDecision:
        return AccessDecision(Access.UNAUTHENTICATED)


@asynccontextmanager
async def serve_on(address: Path, app: Any, http: Any, idle_seconds: int) -> AsyncIterator[None]:
    """Serve an application with a protocol of uvicorn's or of podsettle's, on a Unix socket.

    The kernel passes the bytes of a Unix socket on at once, so the loop sees them in its next
    iteration.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(address))
        config = uvicorn.Config(
            app,
            http=http,
            lifespan="on",
            ws="none",
            access_log=False,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=idle_seconds,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started and not running.done():  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.01)
        try:
            yield
        finally:
            server.should_exit = True
            await running
