"""A server in this process whose connections and delegated reviews a test observes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support.http_client import Client, InProcess, mutate, review_in
from tests.support.reviews import PODS, load_pod, review
from tests.support.waiting import await_that
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.cluster.source import NamespaceLookup
from webhook.server.connections.protocol import ReviewProtocol, State
from webhook.server.reviews.request import ADMISSION_PATHS

POD = load_pod(next(path for path in PODS if path.stem == "woodpecker-step"))
SETTLED = load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar"))
REVIEW = review(SETTLED)
WHOLE = mutate(REVIEW)
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


class DelegatedReviews:
    """An application, and the number of requests that are delegated to its route /mutate."""

    def __init__(self, app: ASGIApp) -> None:
        self.requests = 0
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in ADMISSION_PATHS:
            self.requests += 1
        await self._app(scope, receive, send)


@dataclass
class Served:
    """A server with its source and connections."""

    source: Any
    server: InProcess
    delegated: DelegatedReviews

    def connect(self) -> Client:
        return self.server.connect()

    @property
    def reviews(self) -> int:
        """Return the number of reviews, delegated ones included."""
        return self.server.drain.reviews

    @property
    def connections(self) -> list[ReviewProtocol]:
        """The open connections. The one with the latest answer, or the newest, is the last."""
        return list(self.server.components.review_server.connections)

    def await_state(self, state: State) -> ReviewProtocol:
        """Wait until a connection has a state, and return it."""

        def in_state() -> list[ReviewProtocol]:
            return [found for found in self.connections if found.state is state]

        await_that(in_state, f"a connection is in the state {state.name}")
        return in_state()[0]

    def send_in_two(self, client: Client, request: bytes) -> None:
        """Send the second part of a request after the server has read the first."""
        client.send(request[:-100])
        self.await_state(State.RECEIVING)
        client.send(request[-100:])

    def metrics(self) -> dict[str, float]:
        lines = self.connect().get("/metrics").body.decode().splitlines()  # type: ignore[attr-defined]
        pairs = [line.rpartition(" ") for line in lines if line.startswith("podsettle_")]
        return {name: float(value) for name, _, value in pairs}


Start = Callable[..., Served]


def is_settled(client: Client) -> bool:
    client.send(WHOLE)
    return "patch" in review_in(client.answer())


def review_with_uid(uid: int) -> bytes:
    """A review of a small pod, recognizable by its uid."""
    return mutate(review(POD, uid=str(uid)))


class NewNamespaces:
    """A source that has to look up every namespace."""

    def __init__(self, source: ManifestsSource) -> None:
        self._source = source
        self.view = replace(source.view, namespaces={}, invents_namespaces=False)
        self.fetched: list[str] = []

    async def fetch_namespace(self, name: str, _client: str, _seconds: float) -> NamespaceLookup:
        self.fetched.append(name)
        self.view = self._source.view
        return NamespaceLookup.FOUND

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)
