"""Load shedding by the number of reviews that wait, on a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.support.http_client import InProcess, mutate, review_in
from tests.support.protocol_server import REVIEW, is_settled
from tests.support.waiting import await_that
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.cluster.source import NamespaceLookup

Serve = Callable[..., InProcess]


def test_incomplete_requests_do_not_count_as_load(serve: Serve) -> None:
    server = serve(body_timeout_seconds=3600)
    components = server.components
    components.in_flight.limit = 3
    trickling = [server.connect() for _ in range(10)]
    for client in trickling[:5]:
        client.send(mutate(REVIEW, "?timeout=30s")[:-100])
    for client in trickling[5:]:
        client.send("POST /preview HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nkind")
    await_that(lambda: components.in_flight.requests == 10, "they are in flight")
    assert is_settled(server.connect())
    for client in trickling[:5]:
        client.close()
    for client in trickling[5:]:
        client.send("x: 1\n")
        assert client.answer().status == 422
    await_that(lambda: components.in_flight.requests == 0, "they have ended")
    assert components.in_flight.reviews == 0


class HangingNamespaces:
    """A source that has to look up every namespace, and gets no answer until `found` is set."""

    def __init__(self, source: ManifestsSource) -> None:
        self._source = source
        self.view = replace(source.view, namespaces={}, invents_namespaces=False)
        self.found = threading.Event()

    async def fetch_namespace(self, _name: str, _client: str, _seconds: float) -> NamespaceLookup:
        await asyncio.to_thread(self.found.wait, 30)
        return NamespaceLookup.FAILED

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


def test_reviews_that_wait_for_a_look_up_count_as_load(
    serve: Serve, source: ManifestsSource
) -> None:
    hanging = HangingNamespaces(source)
    server = serve(hanging)
    in_flight = server.components.in_flight
    in_flight.limit = 3
    waiting = [server.connect() for _ in range(4)]
    for client in waiting:
        client.send(mutate(REVIEW))
    await_that(lambda: in_flight.reviews == 4, "four reviews wait")
    late = server.connect()
    late.send(mutate(REVIEW))
    assert (
        "podsettle: Overloaded: 4 reviews are under way" in review_in(late.answer())["warnings"][0]
    )
    hanging.found.set()
    for client in waiting:
        assert "NamespaceUnknown" in review_in(client.answer())["warnings"][0]
    await_that(lambda: in_flight.reviews == 0, "they have ended")
