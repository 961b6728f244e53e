"""The comparison of the protocol with the route behind stock uvicorn, by byte streams."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.data.protocol_differences import (
    DIFFERENCES,
    LONG_HEAD,
    MAX_HEAD_BYTES,
    allow_close,
    expect_close,
)
from tests.support.byte_streams import Piece, Stream
from tests.support.faulty_protocol import Fault, FaultyProtocol
from tests.support.raw_answers import Answer, MalformedAnswerError
from tests.support.raw_requests import count_plain_reviews, first_request, is_plain_review
from tests.support.server_fixtures import STEADY, make_components
from tests.support.stepped_loop import SteppedLoop
from tests.support.stream_exchange import Exchange, exchange
from tests.support.stream_server import LookupSource, NoAccess, serve_on
from webhook.server.app import create_app
from webhook.server.connections.protocol import ReviewProtocol

PLAIN = "plain reviews"
OTHER = "equal"
_TIMEOUT_SECONDS = STEADY.body_timeout_seconds + 1
"""Less than the header timeout, which stock uvicorn does not have."""


@dataclass(frozen=True)
class Servers:
    """The two servers, each with its own application."""

    loop: SteppedLoop
    ours: Path
    stock: Path

    async def compare(self, sent: Stream) -> tuple[str | None, list[str]]:
        """Send a stream to both. Return what differs, and the names of the classes that apply."""
        data = sent.data
        count = count_plain_reviews(data, MAX_HEAD_BYTES)
        is_cut_off = _is_cut_off(data, count or 1)
        applying = [d for d in DIFFERENCES if not count and d.applies(data)]
        pieces = sent.pieces
        if any(difference.first_only for difference in applying):
            pieces = _first_only(sent)
        to_head = data.lstrip(b"\r\n").startswith(b"HEAD ")
        options: dict[str, Any] = {"answers": count or 1, "to_head": to_head}
        send = partial(exchange, self.loop, seconds=_TIMEOUT_SECONDS, **options)
        stock = await send(address=self.stock, pieces=pieces)
        expected: list[Answer | None] = [*stock.answers] if count else [_first(stock)]
        for difference in applying:
            expected[0] = difference.answer(expected[0])
        names = [difference.name for difference in applying]
        if count and is_cut_off:
            expected, name = expect_close(expected)
            names.append(name)
        try:
            ours = await send(address=self.ours, pieces=sent.pieces)
        except MalformedAnswerError as error:
            flaw, actual = f"malformed: {_short(error)}", expected
        else:
            actual = [*ours.answers] if count else [_first(ours)]
            if is_plain_review(data, MAX_HEAD_BYTES) and sent.is_pipelined:
                expected, name = allow_close(expected, actual)
                names.append(name)
            is_whole = not is_cut_off and LONG_HEAD not in names
            flaw = _flaw(ours, is_last=bool(count), is_whole=is_whole)
        names = names or [PLAIN if count else OTHER]
        if actual == expected and not flaw:
            return None, names
        return (
            f"stream {sent.number} ({sent.family}; {', '.join(names)}):\n"
            f"sent {_short(data)}\nin {len(sent.pieces)} pieces: "
            f"{[(len(piece.data), piece.iterations) for piece in sent.pieces[:10]]}\n"
            f"{flaw}\nexpected {_shown(expected)}\nreceived {_shown(actual)}",
            names,
        )


def _first(found: Exchange) -> Answer | None:
    return found.answers[0] if found.answers else None


def _is_cut_off(data: bytes, count: int) -> bool:
    """Return whether one of the first requests is incomplete."""
    for _ in range(count):
        first = first_request(data)
        if first is None:
            return True
        data = data[first.length :]
    return False


def _flaw(ours: Exchange, *, is_last: bool, is_whole: bool) -> str:
    """Return what is wrong with the end of the connection, or an empty string.

    `is_last` says that no further answer may follow, and `is_whole` that no request is incomplete.
    """
    closes = any(answer.closes for answer in ours.answers)
    if ours.rest and (closes or is_last):
        return f"bytes behind the last answer: {_short(ours.rest)}"
    if ours.closed != closes and (closes or is_last):
        return f"closed: {ours.closed}"
    if ours.closed_late and is_whole:
        return "closed by a timeout only"
    return ""


def _first_only(sent: Stream) -> tuple[Piece, ...]:
    """Return the pieces of the first request, without trailers."""
    first = first_request(sent.data)
    assert first is not None
    end = first.trailers and b"\r\n"
    rest = first.length - len(first.trailers)
    found = []
    for piece in sent.pieces:
        found.append(replace(piece, data=piece.data[:rest]))
        rest -= len(found[-1].data)
    return (*found, Piece(end, iterations=None))


def _shown(answers: list[Answer | None]) -> str:
    return "".join(f"\n  {_short(answer)}" for answer in answers)


def _short(value: object, length: int = 700) -> str:
    text = repr(value)
    return text if len(text) <= length else f"{text[: length // 2]} … {text[-length // 2 :]}"


@asynccontextmanager
async def both_servers(fault: Fault | None) -> AsyncIterator[Servers]:
    """Start the two servers."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SteppedLoop)
    idle_seconds = STEADY.idle_timeout_seconds
    with TemporaryDirectory() as directory:
        our_address, stock_address = (Path(directory) / name for name in ("ours", "stock"))
        sources: list[Any] = [LookupSource(), LookupSource()]
        ours, stock = (make_components(source, authorizer=NoAccess()) for source in sources)
        protocol = partial(ReviewProtocol, server=ours.review_server)
        http = partial(FaultyProtocol, protocol, fault) if fault else protocol
        async with (
            serve_on(our_address, create_app(ours), http, idle_seconds),
            serve_on(stock_address, create_app(stock), "httptools", idle_seconds),
        ):
            yield Servers(loop, our_address, stock_address)


@contextmanager
def silent_uvicorn() -> Iterator[None]:
    """Suppress uvicorn's warning for each malformed request."""
    log = logging.getLogger("uvicorn.error")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
