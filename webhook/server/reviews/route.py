"""The FastAPI route POST /mutate, which passes reviews to the handler and sends its answers.

The route works behind any ASGI server. In `podsettle serve`, the protocol answers most reviews by
the same handler, without this route.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from http import HTTPMethod
from time import monotonic

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from webhook.server.limits import DEFAULT_LIMITS, Limits
from webhook.server.reviews.body import ReviewBody
from webhook.server.reviews.client_certs import require_client_certificate
from webhook.server.reviews.handler import RECEIVED_AT_KEY, ReviewHandler, ReviewTiming
from webhook.server.reviews.http_answer import PIECE_BYTES, HttpAnswer, RefusedError, refusal
from webhook.server.reviews.load_shedding import InFlight, MemoryBudget
from webhook.server.reviews.openapi_models import AdmissionReview
from webhook.server.reviews.request import ADMISSION_PATHS, answer_seconds, is_json

_OTHER_METHODS = [str(method) for method in HTTPMethod if method is not HTTPMethod.POST]

_ERRORS = {
    400: "The body is no AdmissionReview with a uid.",
    403: "The client presented no certificate, and podsettle requires one.",
    405: "The method is not POST.",
    408: "Not even the uid of the review was received in time.",
    413: f"The body is longer than {DEFAULT_LIMITS.max_body_bytes} bytes.",
    415: "The Content-Type is not `application/json`.",
    503: "The memory is exhausted, or too many reviews with chunked bodies are in progress.",
}
_REQUEST = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/AdmissionReview"}}
        },
    },
    "parameters": [
        {
            "name": "timeout",
            "in": "query",
            "description": "The timeout of the API server. podsettle answers within 70 % of it.",
            "schema": {"type": "string", "default": "10s"},
        }
    ],
}
"""The description of a request. FastAPI cannot derive it, because the route reads the body itself.
With a parameter for the body, FastAPI would read it without limits, and refuse what it cannot
validate."""


def add_mutate_route(
    app: FastAPI,
    handler: ReviewHandler,
    *,
    budget: MemoryBudget,
    in_flight: InFlight,
    count_refused: Callable[[int], None],
    needs_certificate: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Add the route POST /mutate to an application.

    - `budget` and `in_flight` are those of the handler. An answer counts until it is sent.
    - `count_refused` is called with the status of each request that does not reach the handler.
    - `needs_certificate` refuses clients that presented no certificate.
    """
    dependencies = [Depends(require_client_certificate)] if needs_certificate else []
    router = APIRouter(dependencies=dependencies)

    async def post_mutate(request: Request) -> Response:
        """Answer an AdmissionReview. Every pod is allowed, perhaps with a patch."""
        if not is_json(request.headers.raw):
            raise RefusedError(refusal(415, "send Content-Type: application/json", close=True))
        try:
            answer = await _read_and_answer(request, handler, budget, limits)
        except ClientDisconnect:
            # The server discards this response.
            return Response(status_code=400)
        return _Response(answer, budget, in_flight)

    async def refuse_method() -> Response:
        raise RefusedError(refusal(405, "POST an AdmissionReview here", close=True))

    async def send_refusal(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RefusedError)  # noqa: S101
        count_refused(error.answer.status)
        response = _Response(error.answer, budget, in_flight)
        if error.answer.status == 405:
            response.headers["allow"] = "POST"
        return response

    for path in ADMISSION_PATHS:
        router.add_api_route(
            path,
            post_mutate,
            methods=["POST"],
            summary="Answer an AdmissionReview, for the API server",
            response_model=AdmissionReview,
            responses={
                status: {"description": text, "content": {"text/plain": {}}}
                for status, text in _ERRORS.items()
            },
            include_in_schema=path == ADMISSION_PATHS[0],
            openapi_extra=_REQUEST,
        )
        router.add_api_route(path, refuse_method, methods=_OTHER_METHODS, include_in_schema=False)
    app.include_router(router)
    app.add_exception_handler(RefusedError, send_refusal)


async def _read_and_answer(
    request: Request, handler: ReviewHandler, budget: MemoryBudget, limits: Limits
) -> HttpAnswer:
    """Read a review within its time limit, and return the answer to it.

    Raises ClientDisconnect.
    """
    deadline_seconds = answer_seconds(request.scope["query_string"])
    started_at = monotonic()
    received_at: float = request.scope.get("state", {}).get(RECEIVED_AT_KEY, started_at)
    queued_seconds = started_at - received_at
    body = ReviewBody(budget, limits)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(handler.body_timeout(deadline_seconds) - queued_seconds):
                await _read(request, body)
        timing = ReviewTiming(monotonic() - queued_seconds, deadline_seconds)
        client = request.client.host if request.client else ""
        return await handler.handle(body, timing, client)
    finally:
        # The answer is sent after this. A client that reads slowly must not occupy both.
        body.release()


async def _read(request: Request, body: ReviewBody) -> None:
    """Read until the body has enough for an answer. Raises ClientDisconnect.

    `Request.stream` does not tell whether a piece is the last one. A body that is complete is
    decoded even if the memory budget is exhausted, so this matters.
    """
    while body.wants_more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body.feed(message.get("body", b""))
        if not message.get("more_body", False):
            body.finish()


class _Response(Response):
    """A response that counts as load until the client has read it."""

    def __init__(self, answer: HttpAnswer, budget: MemoryBudget, in_flight: InFlight) -> None:
        headers = {"content-type": answer.content_type.decode()}
        if answer.close:
            headers["connection"] = "close"
        super().__init__(answer.body, answer.status, headers)
        self._budget = budget
        self._in_flight = in_flight

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the response. When this returns, the last chunks can still be in write buffers."""
        with self._in_flight.waiting_review(), self._budget.reserve() as add:
            add(len(self.body))
            start = {"type": "http.response.start", "status": self.status_code}
            await send(start | {"headers": self.raw_headers})
            last = max(len(self.body) - 1, 0) // PIECE_BYTES * PIECE_BYTES
            for begin in range(0, last, PIECE_BYTES):
                chunk = self.body[begin : begin + PIECE_BYTES]
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": self.body[last:]})
