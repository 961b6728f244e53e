"""POST /preview: any workload, in JSON or YAML, answered with what would happen to its pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, Field

from webhook.cluster.snapshot import Snapshot
from webhook.core.decide import Settings
from webhook.core.documents import Document, DocumentError, load_documents
from webhook.core.image_config import NO_IMAGES, ImageQuery, KnownImages
from webhook.core.preview import preview_all
from webhook.core.render import PreviewAnswer, render, render_passed_over
from webhook.core.selectors import parse_labels
from webhook.core.workloads import PassedOver
from webhook.images.lookup import ImageLookup
from webhook.server.framework import APIRouter, HTTPException, Query, Request
from webhook.server.room import Room

MAX_BODY = 4 * 1024 * 1024
MAX_PODS = 500
MAX_OBJECTS_WITHOUT_POD = 5_000
MAX_LINES_OF_DETAIL = 20
"""Lines of an error that says why there is no pod at all."""
SECONDS_FOR_BODY = 30
_SECONDS_FOR_IMAGES = 10.0


class Problem(BaseModel):
    """Why a preview could not be made."""

    detail: str = Field(examples=["body:3: not YAML: did not find expected key"])


def preview_router(
    view: Callable[[], Snapshot],
    settings: Settings,
    room: Room,
    images: ImageLookup | None = None,
) -> APIRouter:
    """The route, over a view and the operator's settings; bodies take up room while it works.

    `images` must have no pull secrets: whoever may see previews may name any namespace, and is not
    to learn by that what its secrets open.
    """
    router = APIRouter()
    one_at_a_time = asyncio.Lock()

    @router.post(
        "/preview",
        summary="What podsettle would do to the pods of a workload",
        responses={code: {"model": Problem} for code in (401, 403, 408, 413, 422, 503)},
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
                description="`key=value`, repeated: the namespace's labels, instead of those in "
                "the cluster.",
            ),
        ] = None,
        template_path: Annotated[
            str | None,
            Query(
                alias="templatePath",
                description="Where a kind that podsettle does not know keeps its pod template, "
                "such as `spec.template`.",
            ),
        ] = None,
    ) -> PreviewAnswer:
        with room.share() as take:
            body = await _read(request, room, take)
            try:
                labels = None if namespace_labels is None else parse_labels(namespace_labels)
                documents = load_documents(body, "body")
                if not documents:
                    raise ValueError("the body is empty: send a Pod or a workload")
                asked = (documents, view(), settings, namespace, labels, template_path)
                # In a thread, one at a time: reviews go on being answered meanwhile.
                async with one_at_a_time:
                    found, lacking = await asyncio.to_thread(_previews, *asked, NO_IMAGES)
                if lacking and images is not None:
                    known = await images.find(lacking, _SECONDS_FOR_IMAGES, most=None)
                    async with one_at_a_time:
                        found, _ = await asyncio.to_thread(_previews, *asked, known)
            except (DocumentError, ValueError) as error:
                raise HTTPException(422, str(error)) from None
        return found

    return router


def _previews(
    documents: list[Document],
    view: Snapshot,
    settings: Settings,
    namespace: str | None,
    labels: dict[str, str] | None,
    template_path: str | None,
    images: KnownImages,
) -> tuple[PreviewAnswer, dict[ImageQuery, None]]:
    """The previews, and the images that they would be better with. Raises ValueError."""
    answer = PreviewAnswer(pods=[], passed_over=[], unreadable=[])
    lacking: dict[ImageQuery, None] = {}
    for document in documents:
        for found in preview_all(
            document.value,
            view,
            settings,
            namespace=namespace,
            namespace_labels=labels,
            template_path=template_path,
            images=images,
        ):
            if isinstance(found, PassedOver):
                listed = answer.unreadable if found.malformed else answer.passed_over
                listed.append(render_passed_over(found, document))
                if len(answer.unreadable) + len(answer.passed_over) > MAX_OBJECTS_WITHOUT_POD:
                    raise ValueError(
                        f"more than {MAX_OBJECTS_WITHOUT_POD} objects without a pod: send them in "
                        "parts"
                    )
                continue
            if len(answer.pods) == MAX_PODS:
                raise ValueError(f"more than {MAX_PODS} pods: send them in parts")
            answer.pods.append(render(found))
            lacking |= dict.fromkeys(found.decision.lacking)
    if not answer.pods:
        without = [*answer.unreadable, *answer.passed_over]
        lines = [str(each) for each in without[:MAX_LINES_OF_DETAIL]]
        if len(without) > len(lines):
            lines.append(f"and {len(without) - len(lines)} more objects without a pod")
        raise ValueError("\n".join(lines) or "the list is empty: there is no pod in it")
    return answer, lacking


async def _read(request: Request, room: Room, take: Callable[[int], None]) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(SECONDS_FOR_BODY):
            async for chunk in request.stream():
                body += chunk
                take(len(chunk))
                if len(body) > MAX_BODY:
                    raise HTTPException(413, f"the body is longer than {MAX_BODY} bytes")
                if room.full:
                    raise HTTPException(503, "too much is being read at once; try again later")
    except TimeoutError:
        raise HTTPException(408, f"no end of the body in {SECONDS_FOR_BODY} s") from None
    return bytes(body)
