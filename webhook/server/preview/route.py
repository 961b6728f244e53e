"""The route POST /preview, which shows how podsettle would change the pods of a workload.

The route only reads bodies and sends answers. A worker process makes the previews (`previewer`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from webhook.core.preview.model import PreviewAnswer
from webhook.server.limits import PreviewLimits
from webhook.server.load_shedding import MemoryBudget
from webhook.server.preview.answer import PreviewAnswerText, PreviewError
from webhook.server.preview.previewer import Previewer, PreviewOptions

MAX_BODY_BYTES = 4 * 1024 * 1024
"""The maximum size of a body. The API server accepts objects of at most 3 MiB."""
_DISCONNECTED = "the client has disconnected"


class Problem(BaseModel):
    """The reason why there is no preview."""

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
        responses={code: {"model": Problem} for code in (401, 403, 408, 413, 422, 500, 503)},
        openapi_extra={
            "requestBody": {
                "required": True,
                "description": "A Pod, or an object with a pod template. Several YAML "
                "documents and Lists are allowed.",
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
        options = PreviewOptions(namespace, namespace_labels, template_path)
        with budget.reserve() as add_bytes:
            body = await _read_body(request, budget, add_bytes, limits.body_timeout_seconds)
            try:
                answer = await _while_connected(request, previewer.preview(options, body))
            except PreviewError as error:
                raise HTTPException(error.status, error.detail) from None
        return _Answer(answer)

    return router


class _Answer(Response):
    """A response with an answer in pieces, which are sent with back-pressure."""

    def __init__(self, answer: PreviewAnswerText) -> None:
        length = str(answer.length)
        super().__init__(headers={"content-length": length}, media_type="application/json")
        self._answer = answer

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            await send(start)
            pieces = deque(self._answer.pieces)
            self._answer.pieces = []
            while pieces:
                piece = {"type": "http.response.body", "body": pieces.popleft()}
                await send(piece | {"more_body": bool(pieces)})
                # send() does not wait if the client reads quickly. Without this pause, a long
                # answer would delay reviews.
                await asyncio.sleep(0)
        finally:
            self._answer.release()


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
