"""Thousands of byte streams, each sent to the protocol and to the route behind stock uvicorn.

For the first request of each stream, and for every request of a stream of plain reviews, status,
content type, body and `Connection: close` have to be equal, and the connection has to end if and
only if the answer says so. `tests/data/protocol_differences.py` lists all exceptions.

To repeat one stream, compare the stream of the number that a failure shows.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.data.protocol_differences import DIFFERENCES, INCOMPLETE, PIPELINED
from tests.support.byte_streams import Piece, Stream, stream
from tests.support.faulty_protocol import FAULTS, Fault
from tests.support.reviews import PODS, load_pod, review
from tests.support.stepped_loop import SteppedLoop
from tests.support.stream_comparison import PLAIN, Servers, both_servers, silent_uvicorn
from webhook.server.limits import DEFAULT_LIMITS

pytestmark = pytest.mark.slow

BLOCKS, BLOCK_STREAMS = 12, 1000
LENGTHS = DEFAULT_LIMITS.max_review_bytes, DEFAULT_LIMITS.max_body_bytes


def run(
    compare: Callable[[Servers], Coroutine[Any, Any, None]], fault: Fault | None = None
) -> None:
    """Compare streams on both servers. A fault changes what podsettle's protocol does."""

    async def main() -> None:
        async with both_servers(fault) as servers:
            await compare(servers)

    with silent_uvicorn(), asyncio.Runner(loop_factory=SteppedLoop) as runner:
        runner.run(main())


@pytest.mark.parametrize("block", range(BLOCKS))
def test_protocol_answers_like_the_route_behind_uvicorn(block: int) -> None:
    async def compare(servers: Servers) -> None:
        found, classes = [], Counter[str]()
        for number in range(block * BLOCK_STREAMS, (block + 1) * BLOCK_STREAMS):
            difference, names = await servers.compare(stream(number))
            classes.update(names)
            if difference is not None:
                found.append(difference)
        assert not found, f"{len(found)} differences:\n\n" + "\n".join(found[:5])
        # A class that never applies is not needed, or its streams are missing.
        named = {difference.name for difference in DIFFERENCES} | {INCOMPLETE, PIPELINED}
        assert named < set(classes)
        assert classes[PLAIN] > BLOCK_STREAMS / 4

    run(compare)


@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("more", [0, 1])
def test_long_body_is_answered_like_by_the_route(length: int, more: int, is_chunked: bool) -> None:
    body = json.dumps(review(load_pod(PODS[0]))).encode().ljust(length + more)
    framing = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % len(body)
    headers = b"Host: x\r\nContent-Type: application/json\r\n%b" % framing
    head = b"POST /mutate HTTP/1.1\r\n%b\r\n\r\n" % headers
    if is_chunked:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    sent = Stream(-1, "long body", (Piece(head, None), Piece(body, None)))

    async def compare(servers: Servers) -> None:
        difference, _ = await servers.compare(sent)
        assert difference is None, difference

    run(compare)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_of_the_protocol_is_found(fault: Fault) -> None:
    async def compare(servers: Servers) -> None:
        for number in range(BLOCK_STREAMS):
            difference, _ = await servers.compare(stream(number))
            if difference is not None:
                return
        pytest.fail("no stream shows the fault")

    run(compare, fault)
