"""POST /preview: any workload, in JSON or YAML, answered with what would happen to its pods.

Bodies are read here; all else happens in a process of its own (`previewer`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from webhook.core.preview.model import PreviewAnswer
from webhook.server.lean_fastapi import APIRouter, HTTPException, Query, Request, Response
from webhook.server.load_shedding import MemoryBudget
from webhook.server.preview.previewer import PreviewedText, Previewer, PreviewError
from webhook.server.preview.previewer import Request as PreviewRequest

MAX_BODY_BYTES = 4 * 1024 * 1024
BODY_TIMEOUT_SECONDS = 30
_DISCONNECTED = "the client has disconnected"


class Problem(BaseModel):
    """Why a preview could not be made."""

    detail: str = Field(examples=["body:3: not YAML: did not find expected key"])


def preview_router(previewer: Previewer, budget: MemoryBudget) -> APIRouter:
    """The route; bodies add up room until their preview is made."""
    router = APIRouter()

    @router.post(
        "/preview",
        summary="What podsettle would do to the pods of a workload",
        response_model=PreviewAnswer,
        responses={code: {"model": Problem} for code in (401, 403, 408, 413, 422, 500, 503)},
        openapi_extra={
            "requestBody": {
                "required": True,
                "description": "A Pod, or anything that holds a pod template; several YAML "
                "documents and Lists are fine.",
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
            str | None, Query(description="The namespace, instead of the one in the object.")
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
        asked = PreviewRequest(namespace, namespace_labels, template_path)
        with budget.reserve() as add:
            body = await _read(request, budget, add)
            try:
                answer = await _while_connected(request, previewer.preview(asked, body))
            except PreviewError as error:
                raise HTTPException(error.status, error.detail) from None
        return _Answer(answer)

    return router


class _Answer(Response):
    """JSON that is made already. Each piece waits until the client has read of those before."""

    def __init__(self, answer: PreviewedText) -> None:
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
                # A client that reads quickly is never waited for, and reviews would be.
                await asyncio.sleep(0)
        finally:
            self._answer.release()


async def _while_connected(
    request: Request, making: Coroutine[Any, Any, PreviewedText]
) -> PreviewedText:
    """The result of a coroutine, which is cancelled once the client has disconnected."""
    made = asyncio.create_task(making)
    gone = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait((made, gone), return_when=asyncio.FIRST_COMPLETED)
        if made.done():
            return made.result()
        raise HTTPException(503, _DISCONNECTED)
    finally:
        for task in (made, gone):
            task.cancel()
        await asyncio.gather(made, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _read(request: Request, budget: MemoryBudget, add: Callable[[int], None]) -> list[bytes]:
    """The body in pieces: to put it together would copy it, and the worker does that."""
    body: list[bytes] = []
    length = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
            async for chunk in request.stream():
                body.append(chunk)
                length += len(chunk)
                add(len(chunk))
                if length > MAX_BODY_BYTES:
                    raise HTTPException(413, f"the body is longer than {MAX_BODY_BYTES} bytes")
                if budget.exhausted:
                    raise HTTPException(503, "too much is being read at once; try again later")
    except TimeoutError:
        raise HTTPException(408, f"no end of the body in {BODY_TIMEOUT_SECONDS} s") from None
    except ClientDisconnect:
        raise HTTPException(503, _DISCONNECTED) from None
    return body
