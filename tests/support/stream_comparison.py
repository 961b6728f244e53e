"""The comparison of the port of reviews with the route behind stock uvicorn, by byte streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from tests.data.protocol_differences import INCOMPLETE, PROBE, REFUSALS, REVIEW, Sent, first_request
from tests.support.byte_streams import UNKNOWN_NAMESPACE, Piece, Stream
from tests.support.paths import EXAMPLES
from tests.support.reviews import PODS, load_pod
from tests.support.server_fixtures import STEADY, make_components
from tests.support.stepped_loop import SteppedLoop
from tests.support.stream_exchange import Answer, Exchange, exchange
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.cluster.source import NamespaceLookup
from webhook.core.cluster.view import Namespace
from webhook.server.app import create_app
from webhook.server.components import Components
from webhook.server.connections.protocol import ReviewProtocol

_SECONDS = STEADY.header_timeout_seconds + 1
_TEXT = b"text/plain; charset=utf-8"


class LookupSource(ManifestsSource):
    """The examples, with a namespace that the view contains only while its look-up is new."""

    def __init__(self) -> None:
        super().__init__(EXAMPLES)
        self.refresh()
        names = {load_pod(path)["metadata"].get("namespace", "default") for path in PODS}
        known = {name: Namespace(name, {"team": "ci"}) for name in sorted(names)}
        known |= self.view.namespaces
        self._known = replace(self.view, namespaces=known, invents_namespaces=False)
        found = {**known, UNKNOWN_NAMESPACE: Namespace(UNKNOWN_NAMESPACE, {"team": "ci"})}
        self._complete = replace(self._known, namespaces=found)
        self.view = self._known

    async def fetch_namespace(self, name: str, _client: str, _seconds: float) -> NamespaceLookup:
        for _ in range(3):
            await asyncio.sleep(0)
        if name != UNKNOWN_NAMESPACE:
            return NamespaceLookup.MISSING
        self.view = self._complete
        asyncio.get_running_loop().call_soon(setattr, self, "view", self._known)
        return NamespaceLookup.FOUND


class Servers(NamedTuple):
    """The two servers, each with its own application."""

    loop: SteppedLoop
    reviews: Path
    stock: Path
    components: Components
    """Those of the port of reviews."""

    async def compare(self, sent: Stream) -> tuple[str, list[str]]:
        """Send a stream to both. Return what differs, and the kinds of the requests."""
        data = b"".join(piece.data for piece in sent.pieces)
        requests = _requests(data)
        methods = [each.method for each in requests]
        kinds = [each.kind for each in requests]
        expected = [await self._expected(each) for each in requests if each.kind != INCOMPLETE]
        actual = await exchange(self.loop, self.reviews, sent.pieces, _SECONDS, methods)
        flaw = _flaw(requests, expected, actual, is_pipelined=_is_pipelined(sent))
        if held := self.components.review_server.handler.budget.used_bytes:
            flaw = f"{held} bytes held"
        if flaw:
            pieces = [(len(piece.data), piece.iterations) for piece in sent.pieces[:9]]
            flaw = (
                f"stream {sent.number} ({sent.family}; {kinds}): {flaw}\nsent {_short(data)}\nin "
                f"{pieces}\nexpected {_short(expected)}\nreceived {_short(actual.answers)}"
            )
        return flaw, kinds

    async def _expected(self, sent: Sent) -> Answer:
        """Return the answer of the port of reviews to a request. A refusal has any text."""
        if sent.kind == PROBE:
            return Answer(200, _TEXT, b"" if sent.method == b"HEAD" else b"ok", sent.closes)
        if sent.kind != REVIEW:
            return Answer(REFUSALS[sent.kind][0], _TEXT, b"", closes=True)
        pieces = (Piece(sent.data),)
        found = await exchange(self.loop, self.stock, pieces, _SECONDS, [sent.method])
        (answer,) = found.answers
        return answer._replace(closes=sent.closes or answer.status != 200 or not sent.is_whole)


def _requests(data: bytes) -> list[Sent]:
    """Return the requests of a stream, up to the first one that is not whole or is refused."""
    found: list[Sent] = []
    while data := data.lstrip(b"\r\n"):
        found.append(first_request(data))
        data = data[len(found[-1].data) :] if found[-1].is_whole else b""
    return found


def _is_pipelined(sent: Stream) -> bool:
    """Return whether the client sends bytes behind a request before it waits for the server."""
    received = b""
    for piece in sent.pieces:
        received += piece.data
        requests = _requests(received)
        if len(requests) > 1:
            return True
        if requests and requests[0].is_whole and piece.iterations is None:
            received = b""
    return False


def _flaw(
    requests: list[Sent], expected: list[Answer], actual: Exchange, *, is_pipelined: bool
) -> str:
    """Return what is wrong with what the port of reviews does, or an empty text."""
    answers = actual.answers
    last = next((n for n, each in enumerate(expected) if each.closes), len(expected) - 1)
    if is_pipelined and answers and answers[-1].closes:
        last = min(last, len(answers) - 1)
        expected[last] = expected[last]._replace(closes=True)
    expected = expected[: last + 1]
    for wanted, found in zip(expected, answers, strict=False):
        is_refusal = wanted.closes and not wanted.body and found.body.endswith(b"\n")
        if wanted != (found._replace(body=b"") if is_refusal else found):
            return "another answer"
    if len(answers) != len(expected) or actual.rest:
        return f"{len(answers)} answers, and then {_short(actual.rest)}"
    ends = len(answers) < len(requests) or any(answer.closes for answer in answers)
    if (actual.closed or actual.closed_late) != ends:
        return "the connection stays open" if ends else "the connection is closed"
    if actual.closed_late and all(each.is_whole for each in requests):
        return "a timeout closes the connection"
    return ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 1500 else f"{text[:750]} … {text[-750:]}"


@asynccontextmanager
async def both_servers() -> AsyncIterator[Servers]:
    """Start both servers, on Unix sockets, whose bytes the next iteration of the loop sees."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SteppedLoop)
    ours, stock = make_components(LookupSource()), make_components(LookupSource())
    config = Config(create_app(stock), http="h11", lifespan="off", ws="none", log_config=None)
    config.load()
    app_state: dict[str, Any] = {}
    with TemporaryDirectory() as directory:
        addresses = Path(directory) / "reviews", Path(directory) / "stock"
        servers = (
            await loop.create_unix_server(
                lambda: ReviewProtocol(ours.review_server, loop), addresses[0]
            ),
            await loop.create_unix_server(
                lambda: H11Protocol(config, ServerState(), app_state), addresses[1]
            ),
        )
        async with servers[0], servers[1]:
            yield Servers(loop, *addresses, ours)
