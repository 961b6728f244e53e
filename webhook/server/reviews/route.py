"""The FastAPI route POST /mutate on the web port, with the handler that the port of reviews uses.

It describes the request in the OpenAPI document, and works behind any ASGI server.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPMethod
from time import monotonic

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from webhook.server.limits import DEFAULT_LIMITS
from webhook.server.reviews.body import ReviewBody
from webhook.server.reviews.handler import ReviewHandler, ReviewTiming
from webhook.server.reviews.openapi_models import AdmissionReview
from webhook.server.reviews.request import (
    ADMISSION_PATHS,
    Refusal,
    answer_seconds,
    body_too_long,
    is_json,
)

_OTHER_METHODS = [str(method) for method in HTTPMethod if method is not HTTPMethod.POST]

_ERRORS = {
    400: "The body is no AdmissionReview with a uid.",
    405: "The method is not POST.",
    408: "Not even the uid of the review was received in time.",
    413: f"The body is longer than {DEFAULT_LIMITS.max_body_bytes} bytes.",
    415: "The Content-Type is not `application/json`.",
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
With a parameter for the body, FastAPI would refuse what it cannot validate."""


def mutate_router(handler: ReviewHandler) -> APIRouter:
    """Return the route, which passes reviews to the handler."""
    router = APIRouter()
    max_bytes = handler.limits.max_body_bytes

    async def post_mutate(request: Request) -> Response:
        """Answer an AdmissionReview. Every pod is allowed, perhaps with a patch."""
        if not is_json(request.headers.raw):
            return refuse(Refusal(415, "send Content-Type: application/json"))
        began_at = monotonic()
        length = request.headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 19 or int(length) > max_bytes):
            return refuse(body_too_long(max_bytes))
        seconds = answer_seconds(request.scope["query_string"])
        body = ReviewBody(handler.budget, handler.limits)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(handler.body_timeout(seconds)):
                    await _read(request, body, max_bytes)
            if body.length > max_bytes:
                return refuse(body_too_long(max_bytes))
            timing = ReviewTiming(began_at, monotonic(), seconds)
            answer = handler.answer_body(body, timing)
            if not isinstance(answer, Refusal) and answer.missing:
                client = request.client.host if request.client else ""
                answer = await handler.look_up(answer, timing, client)
        except ClientDisconnect:
            return Response(status_code=400)  # The server discards it.
        finally:
            body.release()
        if isinstance(answer, Refusal):
            return refuse(answer)
        return Response(answer.body, media_type="application/json")

    def refuse(refusal: Refusal) -> Response:
        handler.count_refused(refusal.status)
        headers = {"allow": "POST"} if refusal.status == 405 else {}
        text = f"{refusal.text}\n"
        return Response(text, refusal.status, headers, "text/plain")

    async def refuse_method() -> Response:
        return refuse(Refusal(405, "POST an AdmissionReview here"))

    for path in ADMISSION_PATHS:
        router.add_api_route(
            path,
            post_mutate,
            methods=["POST"],
            summary="Answer an AdmissionReview, as on --port",
            response_model=AdmissionReview,
            responses={
                status: {"description": text, "content": {"text/plain": {}}}
                for status, text in _ERRORS.items()
            },
            include_in_schema=path == ADMISSION_PATHS[0],
            openapi_extra=_REQUEST,
        )
        router.add_api_route(path, refuse_method, methods=_OTHER_METHODS, include_in_schema=False)
    return router


async def _read(request: Request, body: ReviewBody, max_bytes: int) -> None:
    """Read until the body is too long or has enough for an answer. Raises ClientDisconnect.

    `Request.stream` does not say which chunk is the last one. A complete body is decoded even if
    the memory budget is exhausted, so this matters.
    """
    while body.wants_more and body.length <= max_bytes:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body.feed(message.get("body", b""), is_last=not message.get("more_body", False))
