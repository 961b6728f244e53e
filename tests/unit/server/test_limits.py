"""The protocol's limits on the size of a review are those that the server was given."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.support.http_client import Client, InProcess, mutate, review_in
from tests.support.reviews import PODS, load_pod, review

REVIEW = review(load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar")))


def test_limits_on_the_size_of_a_review_are_those_of_the_server(
    serve: Callable[..., InProcess],
) -> None:
    body = json.dumps(REVIEW).encode().ljust(300_000)
    server = serve(max_review_bytes=len(body), max_body_bytes=len(body) + 1)

    def client_after(extra_bytes: int) -> Client:
        client = server.connect()
        client.send(mutate(body + b" " * extra_bytes))
        return client

    assert "patch" in review_in(client_after(0).answer())
    response = review_in(client_after(1).answer())
    assert f"podsettle reads up to {len(body)}" in response["warnings"][0]
    assert client_after(2).answer().status == 413
