"""POST /mutate: the hot path. A plain ASGI application; no model, no dependency injection.

Bytes in, bytes out, all decisions in `webhook.core`. Every request that carries the uid of a
review is answered 200 with an allowed review, so that no `failurePolicy` ever comes into play.
"""

from __future__ import annotations

import logging
from time import perf_counter

from starlette.types import Receive, Scope, Send

from webhook.cluster.source import Source
from webhook.core.admit import Answer, UnreadableReviewError, admit, admit_unread
from webhook.core.decide import Settings
from webhook.server.metrics import Metrics

log = logging.getLogger(__name__)

MAX_BODY = 4 * 1024 * 1024
"""Bytes that are kept of a body. A longer review is read to its end and its pod admitted unchanged:
the API server takes objects up to 3 MiB, and writes some characters as six (Go's JSON escapes)."""
_MOST_BYTES = 8 * MAX_BODY
"""Bytes after which no more is read: six times 3 MiB, and as much again as a review adds."""

_SECONDS_FOR_A_NAMESPACE = 0.5
"""A small share of the API server's patience, which ends in a pod without its remedies."""

_JSON = (b"content-type", b"application/json")
_CLOSE = (b"connection", b"close")


class Mutate:
    """The ASGI application behind `/mutate`."""

    def __init__(self, source: Source, settings: Settings, metrics: Metrics) -> None:
        self._source = source
        self._settings = settings
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "POST":
            await self._refuse(send, 405, "POST an AdmissionReview here", close=True)
            return
        if not _is_json(scope):
            await self._refuse(send, 415, "send Content-Type: application/json", close=True)
            return
        body, length = await _read(receive)
        if length > _MOST_BYTES:
            await self._refuse(
                send, 413, f"the body is longer than {_MOST_BYTES} bytes", close=True
            )
            return
        start = perf_counter()
        try:
            if length > len(body):
                answer = admit_unread(body, f"{length} bytes are more than the {MAX_BODY} it reads")
            else:
                answer = admit(body, self._source.view, self._settings)
            if answer.unknown_namespace is not None:
                answer = await self._ask_again(body, answer)
        except UnreadableReviewError as error:
            await self._refuse(send, 400, str(error), close=False)
            return
        self._metrics.observe_duration(perf_counter() - start)
        self._metrics.count(answer.decision)
        _log(answer)
        await _respond(send, 200, answer.body, (_JSON,))

    async def _ask_again(self, body: bytes, answer: Answer) -> Answer:
        """Answer once more, if the namespace that was too new to be known can be had in time."""
        name = answer.unknown_namespace or ""
        found = await self._source.fetch_namespace(name, _SECONDS_FOR_A_NAMESPACE)
        return admit(body, self._source.view, self._settings) if found else answer

    async def _refuse(self, send: Send, status: int, message: str, *, close: bool) -> None:
        self._metrics.count_refused(status)
        headers = ((b"content-type", b"text/plain; charset=utf-8"), *((_CLOSE,) if close else ()))
        await _respond(send, status, f"{message}\n".encode(), headers)


def _is_json(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"content-type":
            return bytes(value).partition(b";")[0].strip().lower() == b"application/json"
    return False


async def _read(receive: Receive) -> tuple[bytes, int]:
    """The body, or its beginning where it is too long, and the number of bytes that came."""
    message = await receive()
    body: bytes = message.get("body", b"")
    length = len(body)
    if message.get("more_body"):
        chunks = [body]
        while message.get("more_body") and length <= _MOST_BYTES:
            message = await receive()
            chunk = message.get("body", b"")
            if length <= MAX_BODY:
                chunks.append(chunk)
            length += len(chunk)
        body = b"".join(chunks)
    return body[:MAX_BODY], length


async def _respond(
    send: Send, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def _log(answer: Answer) -> None:
    decision, request = answer.decision, answer.request
    if answer.defect is not None:
        log.error(
            "a defect in podsettle; the pod was admitted unchanged (uid %s)",
            _shown(request.uid) if request else "unknown",
            exc_info=answer.defect,
        )
    elif request is not None and decision.policies and log.isEnabledFor(logging.INFO):
        log.info(
            "%s: %s",
            f"uid {_shown(request.uid)} namespace {_shown(request.namespace or '')}",
            _shown(
                " ".join(f"{key}: {value};" for key, value in decision.audit_annotations.items()),
                2000,
            ),
        )


def _shown(text: str, longest: int = 128) -> str:
    """A text from outside as one line of bounded length: nobody else writes lines of the log."""
    cut = text[:longest]
    return cut if cut.isprintable() else ascii(cut)
