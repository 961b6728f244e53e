"""The route POST /preview, which shows how podsettle would change the pods of a workload.

The route only reads bodies and sends answers. A worker process makes the previews (`previewer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from webhook.core.preview.model import PreviewAnswer
from webhook.server.limits import PreviewLimits
from webhook.server.preview.answer_memory import PreviewAnswerText, PreviewError
from webhook.server.preview.preview_run import PreviewOptions
from webhook.server.preview.previewer import Previewer
from webhook.server.response_in_pieces import PacedResponse
from webhook.server.reviews.load_shedding import MemoryBudget

MAX_BODY_BYTES = 4 * 1024 * 1024
"""The maximum size of a body. The API server accepts objects of at most 3 MiB."""
_DISCONNECTED = "the client has disconnected"


_PARAMETERS = frozenset({"namespace", "namespaceLabel", "templatePath"})
"""The parameters of the query. A misspelled one would change the preview without notice."""
_MAX_NAMED_PARAMETERS, _MAX_PARAMETER_CHARACTERS = 3, 100
"""How much of unknown parameters an error names, because people read it."""
_ERRORS = {
    401: "The request has no valid token.",
    403: "The account may not use this path.",
    408: "The body was not received in time.",
    413: f"The body is longer than {MAX_BODY_BYTES} bytes.",
    422: "The body cannot be read or takes too much time, memory or space in the answer, or a "
    "parameter is not known or not valid.",
    500: "The process that makes previews has failed.",
    503: "Too many previews are in progress, or the API server could not check the token.",
}


class Problem(BaseModel):
    """The reason why podsettle does not answer the request."""

    detail: str = Field(examples=["body:3: not YAML: did not find expected key"])


def preview_router(previewer: Previewer, budget: MemoryBudget, limits: PreviewLimits) -> APIRouter:
    """Return the router for POST /preview.

    A body counts against the budget until its preview is made.
    """
    router = APIRouter()

    @router.post(
        "/preview",
        summary="What podsettle would do to the pods of a workload",
        response_model=PreviewAnswer,
        responses={
            status: {"description": text, "model": Problem} for status, text in _ERRORS.items()
        },
        openapi_extra={
            "requestBody": {
                "required": True,
                "description": "A Pod, or an object with a pod template. Several YAML "
                "documents and Lists are allowed. A SettlePolicy among them decides in place of "
                "the policy in force with its name, for this preview only.",
                "content": {
                    "application/yaml": {"schema": {"type": "string"}},
                    "application/json": {"schema": {"type": "object"}},
                },
            }
        },
    )
    async def post_preview(
        request: Request,
        namespace: Annotated[
            str | None, Query(description="The namespace. Default: the one in the object.")
        ] = None,
        namespace_labels: Annotated[
            list[str] | None,
            Query(
                alias="namespaceLabel",
                description="A label of the namespace, as `key=value`. Can be repeated. The "
                "labels replace those in the cluster.",
            ),
        ] = None,
        template_path: Annotated[
            str | None,
            Query(
                alias="templatePath",
                description="The path of the pod template in a kind that podsettle does not know, "
                "such as `spec.template`.",
            ),
        ] = None,
    ) -> Response:
        _refuse_unknown_parameters(request)
        options = PreviewOptions(namespace, namespace_labels, template_path)
        with budget.reserve() as add_bytes:
            body = await _read_body(request, budget, add_bytes, limits.body_timeout_seconds)
            try:
                answer = await _while_connected(request, previewer.preview(options, body))
            except PreviewError as error:
                raise HTTPException(error.status, error.detail) from None
        pieces, answer.pieces = answer.pieces, []
        return PacedResponse(pieces, answer.release)

    return router


def _refuse_unknown_parameters(request: Request) -> None:
    """Raise HTTPException if the query has a parameter that this route does not take."""
    unknown = sorted(request.query_params.keys() - _PARAMETERS)
    if unknown:
        named = [repr(name[:_MAX_PARAMETER_CHARACTERS]) for name in unknown[:_MAX_NAMED_PARAMETERS]]
        more = len(unknown) - len(named)
        listed = ", ".join(named) + (f" and {more} more" if more else "")
        known = ", ".join(sorted(_PARAMETERS))
        raise HTTPException(422, f"unknown parameters: {listed}; /preview takes {known}")


async def _while_connected(
    request: Request, preview: Coroutine[Any, Any, PreviewAnswerText]
) -> PreviewAnswerText:
    """Return the result of a preview. Cancel the preview if the client disconnects.

    Raises HTTPException after a disconnect.
    """
    preview_task = asyncio.create_task(preview)
    disconnect_task = asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait((preview_task, disconnect_task), return_when=asyncio.FIRST_COMPLETED)
        if preview_task.done():
            return preview_task.result()
        raise HTTPException(503, _DISCONNECTED)
    finally:
        for task in (preview_task, disconnect_task):
            task.cancel()
        await asyncio.gather(preview_task, disconnect_task, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _read_body(
    request: Request, budget: MemoryBudget, add_bytes: Callable[[int], None], timeout_seconds: float
) -> list[bytes]:
    """Return the body in pieces. This process does not copy them, because the worker joins them."""
    body: list[bytes] = []
    length = 0
    try:
        async with asyncio.timeout(timeout_seconds):
            async for chunk in request.stream():
                body.append(chunk)
                length += len(chunk)
                add_bytes(len(chunk))
                if length > MAX_BODY_BYTES:
                    raise HTTPException(413, f"the body is longer than {MAX_BODY_BYTES} bytes")
                if budget.exhausted:
                    raise HTTPException(
                        503, "other previews occupy too much memory; try again later"
                    )
    except TimeoutError:
        raise HTTPException(
            408, f"the body was not complete within {timeout_seconds:g} s"
        ) from None
    except ClientDisconnect:
        raise HTTPException(503, _DISCONNECTED) from None
    return body
