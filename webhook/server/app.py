"""The application: every route of podsettle, over a source of the cluster's state."""

from __future__ import annotations

import platform
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.routing import Route

from webhook import __version__
from webhook.cluster.source import Source
from webhook.core.decide import Settings
from webhook.server.metrics import Metrics
from webhook.server.mutate import Mutate
from webhook.server.page import page_router
from webhook.server.preview import preview_router
from webhook.server.probes import probes_router


def create_app(
    source: Source, settings: Settings, certificate_expires: Callable[[], datetime]
) -> FastAPI:
    """The application. It keeps the source up to date for as long as it runs."""
    metrics = Metrics(__version__)
    metrics.certificate_expiry.set_function(lambda: certificate_expires().timestamp())
    metrics.policies.set_function(lambda: len(source.view.policies))
    metrics.manifest_problems.set_function(lambda: len(source.problems))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with source.running():
            yield

    app = FastAPI(
        title="podsettle",
        version=__version__,
        description="A mutating admission webhook that settles pods.",
        lifespan=lifespan,
        # Their pages load scripts from elsewhere; the document itself is at /openapi.json.
        docs_url=None,
        redoc_url=None,
    )
    # A class instance is served as plain ASGI: FastAPI's request model costs half the throughput.
    app.router.routes.append(Route("/mutate", Mutate(source, settings, metrics)))
    app.include_router(preview_router(lambda: source.view, settings))
    app.include_router(
        probes_router(source.checks, {"version": __version__, "python": platform.python_version()})
    )
    app.include_router(page_router())

    @app.get("/metrics", summary="Prometheus metrics", response_class=Response)
    async def get_metrics() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return app
