"""The application: all routes of podsettle."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Depends, FastAPI, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from webhook import __version__
from webhook.server.auth import guard
from webhook.server.components import Components
from webhook.server.health import health_router
from webhook.server.page.route import page_router
from webhook.server.page.view_route import view_router
from webhook.server.preview.route import preview_router
from webhook.server.reviews.route import mutate_router

_PROBLEM = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
# With `model`, the document would give these answers the content type of the metrics.
_REFUSED: dict[int | str, dict[str, Any]] = {
    401: {"description": "The request has no valid token.", "content": _PROBLEM},
    403: {"description": "The account may not use this path.", "content": _PROBLEM},
    503: {"description": "The API server could not check the token.", "content": _PROBLEM},
}


def create_app(components: Components) -> FastAPI:
    """Return the application. The components run while its lifespan runs."""

    handler = components.review_server.handler
    app = FastAPI(
        title="podsettle",
        version=__version__,
        description="A mutating admission webhook that settles pods.",
        lifespan=lambda _app: components.running(),
        # The documentation pages of FastAPI load scripts from other sites, so they are disabled.
        # The OpenAPI document remains available at /openapi.json.
        docs_url=None,
        redoc_url=None,
    )
    if not components.review_server.needs_certificate:
        # The route does not learn of certificates, so a client without one could send reviews.
        app.include_router(mutate_router(handler))
    authorizer = components.parts.authorizer
    authorized = [] if authorizer is None else [Depends(guard(authorizer.authorize))]
    app.include_router(
        preview_router(components.previewer, components.metrics.count_preview),
        responses=_REFUSED,
        dependencies=authorized,
    )
    app.include_router(
        view_router(components.view_answer, handler.limits.view.max_answers),
        responses=_REFUSED,
        dependencies=authorized,
    )
    app.include_router(health_router(components.checks, components.parts.certificates))
    app.include_router(page_router())

    @app.get(
        "/metrics",
        summary="Prometheus metrics",
        response_class=PlainTextResponse,
        responses=_REFUSED,
        dependencies=authorized,
    )
    async def get_metrics() -> Response:
        await components.set_gauges()
        # With 1,000 policies, this takes 30 ms.
        body = await asyncio.to_thread(generate_latest, components.metrics.registry)
        return Response(body, media_type=CONTENT_TYPE_LATEST)

    return app
