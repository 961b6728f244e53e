"""The application: all routes of podsettle, and the objects that they share."""

from __future__ import annotations

import platform
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from datetime import datetime
from functools import partial

from fastapi import Depends, FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from webhook import __version__
from webhook.cluster.authorizer import Authorizer
from webhook.cluster.source import Check, Source
from webhook.core.admission.decide import OperatorSettings
from webhook.core.pull_secrets import PullSecrets
from webhook.server.admission import ReviewHandler
from webhook.server.auth import guard
from webhook.server.drain import Drain
from webhook.server.health import log_check_changes, probes_router
from webhook.server.lazy_images import LazyImageResolver, NewImageResolver
from webhook.server.limits import DEFAULT_LIMITS, Limits
from webhook.server.load_shedding import InFlight, MemoryBudget
from webhook.server.metrics import Metrics
from webhook.server.mutate import add_mutate_route
from webhook.server.page import page_router
from webhook.server.preview.previewer import Previewer
from webhook.server.preview.route import preview_router
from webhook.server.protocol import AdmissionServer
from webhook.server.review_log import ReviewLog
from webhook.tasks import supervise


class Application(FastAPI):
    """A FastAPI application and what its server needs beside it."""

    admission_server: AdmissionServer
    """The state of the HTTP protocol. It answers most reviews without calling this application."""
    limits: Limits


def create_app(
    source: Source,
    settings: OperatorSettings,
    *,
    certificate_expires: Callable[[], datetime],
    drain: Drain,
    new_image_resolver: NewImageResolver,
    checks: Callable[[], Iterable[Check]] | None = None,
    running: Callable[[], AbstractAsyncContextManager[None]] | None = None,
    authorizer: Authorizer | None = None,
    client_certificates: bool = False,
    pull_secrets: PullSecrets | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Application:
    """Return the application.

    - `certificate_expires` returns the time at which the served certificate expires.
    - `new_image_resolver` is called in a thread when the first image has to be looked up.
    - `checks` returns the readiness checks, except the check of `drain`. The default is
      `source.checks`.
    - `running` returns a context that is active while the application runs. The default is
      `source.running`.
    - `authorizer` protects /preview and /metrics. If it is None, they are open to all clients.
    - `client_certificates` makes /mutate refuse clients that presented no certificate.
    - `pull_secrets` are used for images of admitted pods, but never for images in previews.
    """
    run = running or source.running
    source_checks = checks or source.checks

    def all_checks() -> Iterable[Check]:
        yield from source_checks()
        yield drain.check()

    in_flight = InFlight()
    review_budget = MemoryBudget()
    review_log = ReviewLog()
    metrics = Metrics(__version__)
    metrics.certificate_expiry.set_function(lambda: certificate_expires().timestamp())
    metrics.policies.set_function(lambda: len(source.view.policies))
    metrics.manifest_problems.set_function(lambda: len(source.problems))
    metrics.in_flight.set_function(lambda: in_flight.requests)

    # Previews use a separate resolver. A preview can name any namespace. With a shared resolver,
    # its look-ups would count against the limit of that namespace's pods.
    images, preview_images = (
        LazyImageResolver(
            partial(
                new_image_resolver,
                credentials,
                count=metrics.count_image_lookup,
                count_refused_dns_lookup=metrics.count_refused_dns_lookup,
            )
        )
        for credentials in (pull_secrets, None)
    )
    metrics.stuck_dns_lookups.set_function(
        lambda: images.stuck_dns_lookups + preview_images.stuck_dns_lookups
    )
    previewer = Previewer(
        lambda: source.view, settings, preview_images, limits.preview, metrics.count_preview
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with (
            run(),
            aclosing(images),
            aclosing(preview_images),
            aclosing(previewer),
            supervise(lambda: log_check_changes(all_checks)),
        ):
            try:
                yield
            finally:
                review_log.flush()

    app = Application(
        title="podsettle",
        version=__version__,
        description="A mutating admission webhook that settles pods.",
        lifespan=lifespan,
        dependencies=[Depends(in_flight.count_request)],
        # The documentation pages of FastAPI load scripts from other sites, so they are disabled.
        # The OpenAPI document remains available at /openapi.json.
        docs_url=None,
        redoc_url=None,
    )
    app.limits = limits
    app.state.in_flight = in_flight
    app.state.review_budget = review_budget
    app.state.previewer = previewer
    handler = ReviewHandler(
        source,
        settings,
        metrics=metrics,
        review_log=review_log,
        drain=drain,
        in_flight=in_flight,
        budget=review_budget,
        images=images,
        limits=limits,
    )
    app.admission_server = AdmissionServer(handler, client_certificates, limits)
    add_mutate_route(
        app,
        handler,
        budget=review_budget,
        in_flight=in_flight,
        count_refused=metrics.count_refused,
        needs_certificate=client_certificates,
        goaway_chance=limits.goaway_chance,
    )
    authorized = [Depends(guard(authorizer))]
    # Previews have a separate memory budget. Previews are queued, each with a body of up to 4 MiB,
    # so they would exhaust the budget of reviews.
    app.state.preview_budget = MemoryBudget()
    app.include_router(
        preview_router(previewer, app.state.preview_budget, limits.preview), dependencies=authorized
    )
    app.include_router(
        probes_router(all_checks, {"version": __version__, "python": platform.python_version()})
    )
    app.include_router(page_router())

    @app.get(
        "/metrics",
        summary="Prometheus metrics",
        response_class=Response,
        dependencies=authorized,
    )
    async def get_metrics() -> Response:
        metrics.set_checks(all_checks())
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return app
