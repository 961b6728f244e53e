"""A client that sends a byte stream, on the event loop of the server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import h11

from tests.support.byte_streams import Piece
from tests.support.stepped_loop import SteppedLoop


class Answer(NamedTuple):
    """What a client learns from an answer."""

    status: int
    content_type: bytes
    body: bytes
    closes: bool
    """Whether the answer has `Connection: close`."""


class Exchange(NamedTuple):
    """What a client received on one connection."""

    answers: list[Answer]
    rest: bytes
    """The bytes behind the last answer that is complete and valid."""
    closed: bool
    """Whether the server has closed the connection, before any time has passed."""
    closed_late: bool
    """Whether it has done so after some time."""


async def exchange(
    loop: SteppedLoop,
    address: Path,
    pieces: Sequence[Piece],
    seconds: float,
    methods: Sequence[bytes],
) -> Exchange:
    """Send the pieces on a connection of their own, and return what the server does then.

    `methods` are those of the requests. If the connection stays open without an answer to each of
    them, the loop's time passes twice for some seconds: a timeout may first lead to an answer, and
    another one then to the end.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        client.connect(str(address))
        received = bytearray()
        ended = False
        for piece in pieces:
            unsent = memoryview(piece.data)
            while unsent and not ended:
                try:
                    unsent = unsent[client.send(unsent) :]
                except BlockingIOError:
                    await loop.idle()
                    ended = _receive(client, received)
                except ConnectionError:
                    ended = True
            if piece.iterations is None:
                await loop.idle()
            for _ in range(piece.iterations or 0):
                await asyncio.sleep(0)
        await loop.idle()
        closed = ended = _receive(client, received) or ended
        for _ in range(2):
            answers, _ = _read_answers(bytes(received), methods)
            if not ended and (len(answers) < len(methods) or answers[-1].closes):
                await loop.advance(seconds)
                ended = _receive(client, received)
    await loop.idle()
    answers, rest = _read_answers(bytes(received), methods)
    return Exchange(answers, rest, closed, closed_late=ended and not closed)


def _receive(client: socket.socket, received: bytearray) -> bool:
    """Receive what there is, and return whether the server has closed the connection."""
    try:
        while data := client.recv(1024 * 1024):
            received += data
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def _read_answers(data: bytes, methods: Sequence[bytes]) -> tuple[list[Answer], bytes]:
    """Return the first complete answers, at most one for each method, and the bytes behind them."""
    answers: list[Answer] = []
    for method in methods:
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        client.send(h11.EndOfMessage())
        client.receive_data(data)
        events = []
        try:
            while not isinstance(event := client.next_event(), h11.EndOfMessage):
                if event in (h11.NEED_DATA, h11.PAUSED):
                    return answers, data
                events.append(event)
        except h11.RemoteProtocolError:
            return answers, data
        (head,) = (each for each in events if isinstance(each, h11.Response))
        body = b"".join(each.data for each in events if isinstance(each, h11.Data))
        headers = dict(head.headers)
        closes = headers.get(b"connection") == b"close"
        answers.append(Answer(head.status_code, headers.get(b"content-type", b""), body, closes))
        data = client.trailing_data[0]
    return answers, data
