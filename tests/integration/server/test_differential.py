"""Thousands of byte streams, each sent to the port of reviews and to the route behind uvicorn.

Each review gets the same answer from both: the status, the content type and every byte of the body.
`tests/data/protocol_differences.py` lists the differences, and what all other requests get. The
connection ends if and only if the last answer says so.

To repeat one stream, compare the stream of the number that a failure shows.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.data.protocol_differences import INCOMPLETE, PROBE, REFUSALS, REVIEW
from tests.support.byte_streams import Piece, Stream, stream
from tests.support.long_forms import IS_LONG
from tests.support.reviews import PODS, load_pod, review
from tests.support.stepped_loop import SteppedLoop
from tests.support.stream_comparison import Servers, both_servers
from webhook.server.limits import DEFAULT_LIMITS

pytestmark = pytest.mark.slow

BLOCKS, BLOCK_STREAMS = (12 if IS_LONG else 2), 1000


def run(compare: Callable[[Servers], Coroutine[Any, Any, None]]) -> None:
    """Compare streams on both servers."""

    async def main() -> None:
        async with both_servers() as servers:
            await compare(servers)

    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        runner.run(main())


@pytest.mark.parametrize("block", range(BLOCKS))
def test_port_of_reviews_answers_like_the_route_or_refuses(block: int) -> None:
    async def compare(servers: Servers) -> None:
        flaws, kinds = [], Counter[str]()
        for number in range(block * BLOCK_STREAMS, (block + 1) * BLOCK_STREAMS):
            flaw, found = await servers.compare(stream(number))
            kinds.update(found)
            if flaw:
                flaws.append(flaw)
        assert not flaws, f"{len(flaws)} differences:\n\n" + "\n".join(flaws[:5])
        assert set(kinds) == {REVIEW, PROBE, INCOMPLETE, *REFUSALS}
        assert kinds[REVIEW] > BLOCK_STREAMS / 2

    run(compare)


@pytest.mark.parametrize("length", [DEFAULT_LIMITS.max_review_bytes, DEFAULT_LIMITS.max_body_bytes])
@pytest.mark.parametrize("more", [0, 1])
def test_long_body_is_answered_like_by_the_route(length: int, more: int) -> None:
    body = json.dumps(review(load_pod(PODS[0]))).encode().ljust(length + more)
    headers = b"Host: x\r\nContent-Type: application/json\r\nContent-Length: %d" % len(body)
    head = b"POST /mutate HTTP/1.1\r\n%b\r\n\r\n" % headers

    async def compare(servers: Servers) -> None:
        flaw, _ = await servers.compare(Stream(-1, "long body", (Piece(head), Piece(body))))
        assert not flaw

    run(compare)
