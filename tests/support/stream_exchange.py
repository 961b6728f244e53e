"""A client that sends a byte stream, on the event loop of the server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.byte_streams import Piece
from tests.support.raw_answers import Answer, read_answers
from tests.support.stepped_loop import SteppedLoop

_RECEIVE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Exchange:
    """What a client received on one connection."""

    answers: tuple[Answer, ...]
    rest: bytes
    """The bytes behind the last expected answer."""
    closed: bool
    """Whether the server has closed the connection."""
    closed_late: bool
    """Whether it has done so only after time had passed."""


async def exchange(
    loop: SteppedLoop,
    address: Path,
    pieces: Sequence[Piece],
    seconds: float,
    *,
    answers: int = 1,
    to_head: bool = False,
) -> Exchange:
    """Send the pieces on a connection of their own, and return what the server does then.

    At most `answers` answers are read. If fewer arrive, or if the last one says that the connection
    closes and it does not, the loop's time passes for some seconds, so that the timeouts of the
    server apply. `to_head` says that the first request is a HEAD.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        client.connect(str(address))
        received = bytearray()
        closed = False
        for piece in pieces:
            closed = closed or await _send_piece(loop, client, piece, received)
        await loop.idle()
        closed = _receive(client, received) or closed
        closed_late = not closed
        for _ in range(2):
            # A timeout may first lead to an answer, and another one then to the end.
            found, _ = read_answers(bytes(received), answers, to_head=to_head)
            if not closed and (len(found) < answers or found[-1].closes):
                await loop.advance(seconds)
                closed = _receive(client, received)
    await loop.idle()
    found, rest = read_answers(bytes(received), answers, to_head=to_head)
    return Exchange(found, rest, closed, closed_late=closed and closed_late)


async def _send_piece(
    loop: SteppedLoop, client: socket.socket, piece: Piece, received: bytearray
) -> bool:
    """Send a piece, as far as the server reads it. Return whether it has closed the connection."""
    unsent = memoryview(piece.data)
    closed, waited = False, False
    while len(unsent) and not closed:
        sent = _send(client, unsent)
        unsent = unsent[sent:]
        if not sent and waited:
            break
        waited = not sent
        if waited:
            await loop.idle()
            closed = _receive(client, received)
    if piece.iterations is None:
        await loop.idle()
    for _ in range(piece.iterations or 0):
        await asyncio.sleep(0)
    return closed


def _send(client: socket.socket, data: memoryview) -> int:
    """Send what the kernel takes, and return its length. A lost connection takes all."""
    try:
        return client.send(data)
    except BlockingIOError:
        return 0
    except ConnectionError:
        return len(data)


def _receive(client: socket.socket, received: bytearray) -> bool:
    """Receive what there is, and return whether the server has closed the connection."""
    try:
        while data := client.recv(_RECEIVE_BYTES):
            received += data
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True
