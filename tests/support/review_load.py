"""Clients that send reviews all the time, as an API server does."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

from tests.support.http_client import Client, mutate, review_in
from tests.support.process import RunningServer
from tests.support.reviews import PODS, load_pod, review
from tests.support.waiting import await_that, repeating

SETTLED = review(load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar")))
WHOLE = mutate(SETTLED)
_PAUSE_SECONDS = 0.02


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
    context = ssl.create_default_context(cafile=server.ca)

    def settle(client: Client) -> None:
        client.send(WHOLE)
        assert "patch" in (answer := review_in(client.answer())), answer

    def keep() -> None:
        started_at = monotonic()
        settle(kept)
        load.slowest_seconds = max(load.slowest_seconds, monotonic() - started_at)
        load.kept += 1

    def renew() -> None:
        with Client(address, context) as client:
            settle(client)
        load.fresh += 1

    address = "127.0.0.1", server.port
    with (
        Client(address, context) as kept,
        repeating(keep, renew, pause_seconds=_PAUSE_SECONDS) as load.failed,
    ):
        load.await_answers()
        yield load
        load.await_answers()
    assert not load.failed
