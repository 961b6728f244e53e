"""The route POST /preview, which shows how podsettle would change the pods of a workload."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from webhook.core.labels import parse_labels
from webhook.core.preview.model import PreviewAnswer
from webhook.server.metrics import PreviewResult
from webhook.server.preview.previewer import Previewer, PreviewError, above_limit
from webhook.server.response_in_pieces import PacedResponse

MAX_BODY_BYTES = 256 * 1024
_PARAMETERS = "namespace", "namespaceLabel", "templatePath"  # A misspelled one must be noticed.
_ERRORS = {
    408: "The body was not received in time.",
    413: f"The body is longer than {MAX_BODY_BYTES} bytes, or it or its answer contains too much.",
    422: "The body cannot be read or takes too much time or memory, or a parameter is not valid.",
    429: "Too many previews are in progress. The header Retry-After says when to try again.",
    500: "The process that makes previews has failed.",
}


class Problem(BaseModel):
    """The reason why podsettle does not answer the request."""

    detail: str = Field(examples=["body:3: not YAML: did not find expected key"])


_NAMESPACE = Query(description="The namespace. Default: the one in the object.")
_NAMESPACE_LABEL = Query(
    alias="namespaceLabel",
    description="A label `key=value` of the namespace, in place of the cluster's. Repeatable.",
)
_TEMPLATE_PATH = Query(
    alias="templatePath",
    description="The path of the pod template in an unknown kind, such as `spec.template`.",
)
_BODY = {
    "required": True,
    "description": "Pods, or objects with a pod template, in YAML documents and Lists. A "
    "SettlePolicy among them decides in place of the policy in force with its name.",
    "content": {
        "application/yaml": {"schema": {"type": "string"}},
        "application/json": {"schema": {"type": "object"}},
    },
}


def preview_router(previewer: Previewer, count: Callable[[PreviewResult], None]) -> APIRouter:
    """Return the router for POST /preview. `count` is called with the result of each preview."""
    router = APIRouter()
    # Held from the end of the body until the answer is sent: slow clients keep no others waiting.
    requests = asyncio.Semaphore(previewer.limits.max_requests)

    @router.post(
        "/preview",
        summary="What podsettle would do to the pods of a workload",
        response_model=PreviewAnswer,
        responses={code: {"description": text, "model": Problem} for code, text in _ERRORS.items()},
        openapi_extra={"requestBody": _BODY},
    )
    async def post_preview(
        request: Request,
        namespace: Annotated[str | None, _NAMESPACE] = None,
        namespace_labels: Annotated[list[str] | None, _NAMESPACE_LABEL] = None,
        template_path: Annotated[str | None, _TEMPLATE_PATH] = None,
    ) -> Response:
        with ExitStack() as stack:
            try:
                if unknown := sorted(request.query_params.keys() - {*_PARAMETERS}):
                    text = f"unknown parameter {unknown[0][:100]!r}; it takes "
                    raise ValueError(text + ", ".join(_PARAMETERS))
                labels = None if namespace_labels is None else parse_labels(namespace_labels)
                body = await _read_body(request, previewer.limits.body_timeout_seconds)
                if requests.locked():
                    raise PreviewError("overloaded", 429, "other previews are waiting; try again")
                await requests.acquire()
                stack.callback(requests.release)
                preview = previewer.preview(body, namespace, labels, template_path)
                answer = await _while_connected(request, preview)
            except (ValueError, PreviewError) as error:
                if isinstance(error, ValueError):
                    error = PreviewError("refused", 422, str(error))
                count(error.result)
                raise error from None
            count("answered")
            return PacedResponse(answer, stack.pop_all().close)

    return router


async def _while_connected(request: Request, preview: Awaitable[bytes]) -> bytes:
    """Return the preview. Cancel it, and raise PreviewError, if the client disconnects."""
    timeout = asyncio.timeout(None)

    async def watch() -> None:
        await request.receive()
        timeout.reschedule(0)

    watching = asyncio.create_task(watch())
    try:
        async with timeout:
            return await preview
    except TimeoutError:
        raise PreviewError("disconnected", 408, "the client has disconnected") from None
    finally:
        watching.cancel()


async def _read_body(request: Request, timeout_seconds: float) -> bytes:
    """Return the body. Raises PreviewError."""
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise above_limit(413, f"the body is longer than {MAX_BODY_BYTES >> 10} KiB")
    except (TimeoutError, ClientDisconnect):
        detail = f"the body was not complete within {timeout_seconds:g} s"
        raise PreviewError("disconnected", 408, detail) from None
    return bytes(body)
