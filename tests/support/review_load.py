"""Clients that send reviews all the time, as an API server does."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

from tests.support.http_client import Client, mutate, review_in
from tests.support.process import RunningServer
from tests.support.reviews import PODS, load_pod, review
from tests.support.waiting import await_that

SETTLED = review(load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar")))
WHOLE = mutate(SETTLED)
_PAUSE_SECONDS = 0.02


def connect(server: RunningServer, context: ssl.SSLContext | None = None) -> Client:
    """Return a TLS connection that trusts the server's CA."""
    return Client(
        ("127.0.0.1", server.port), context or ssl.create_default_context(cafile=server.ca)
    )


@dataclass
class ReviewLoad:
    """The number of answers that two clients have received, and their failures."""

    kept: int = 0
    """Answers on a connection that stays open."""
    fresh: int = 0
    """Answers on a new connection each."""
    slowest_seconds: float = 0.0
    """The longest time of an answer, on a connection that stays open."""
    failed: list[str] = field(default_factory=list)

    def await_answers(self, count: int = 5) -> None:
        """Wait until both clients have received some more answers."""
        kept, fresh = self.kept + count, self.fresh + count
        await_that(
            lambda: self.failed or (self.kept >= kept and self.fresh >= fresh),
            "reviews of other clients are answered",
        )
        assert not self.failed


@contextmanager
def sending_reviews(server: RunningServer) -> Iterator[ReviewLoad]:
    """Send reviews while the block runs. At the end, fail if a pod was not settled."""
    load = ReviewLoad()
    over = threading.Event()
    context = ssl.create_default_context(cafile=server.ca)

    def settle(client: Client) -> None:
        client.send(WHOLE)
        assert "patch" in (answer := review_in(client.answer())), answer

    def keep() -> None:
        with connect(server, context) as client:
            while not over.wait(_PAUSE_SECONDS):
                started_at = monotonic()
                settle(client)
                load.slowest_seconds = max(load.slowest_seconds, monotonic() - started_at)
                load.kept += 1

    def renew() -> None:
        while not over.wait(_PAUSE_SECONDS):
            with connect(server, context) as client:
                settle(client)
            load.fresh += 1

    def run(send: Callable[[], None]) -> None:
        try:
            send()
        except Exception as error:
            load.failed.append(f"{send.__name__}: {error!r}")

    threads = [threading.Thread(target=run, args=(send,)) for send in (keep, renew)]
    for thread in threads:
        thread.start()
    try:
        load.await_answers()
        yield load
        load.await_answers()
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not load.failed
