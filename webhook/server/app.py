"""The application: every route of podsettle, over a source of the cluster's state."""

from __future__ import annotations

import logging
import platform
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from datetime import datetime

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.types import ASGIApp, Receive, Scope, Send

from webhook import __version__
from webhook.cluster.authorizer import Authorizer
from webhook.cluster.source import Check, Source
from webhook.core.admission.decide import OperatorSettings
from webhook.core.pull_secrets import PullSecrets
from webhook.images.lookup import ImageLookup, new_resolver
from webhook.server.admission import AdmissionHandler
from webhook.server.auth import BASIC, guard
from webhook.server.client_certs import DemandClientCertificate
from webhook.server.drain import Drain
from webhook.server.health import log_check_changes, probes_router
from webhook.server.lean_fastapi import Depends, FastAPI, Response
from webhook.server.load_shedding import InFlight, MemoryBudget
from webhook.server.metrics import Metrics
from webhook.server.page import page_router
from webhook.server.preview.previewer import DEFAULT_LIMITS, Previewer, PreviewLimits
from webhook.server.preview.route import preview_router
from webhook.server.protocol import AdmissionServer
from webhook.server.request_head import ADMISSION_PATHS
from webhook.server.review_log import ReviewLog
from webhook.tasks import supervise

log = logging.getLogger(__name__)


class Application(FastAPI):
    """FastAPI for every route but one: its way to a route takes longer than a decision does."""

    mutate: ASGIApp
    admission_server: AdmissionServer
    """To what `mutate` answers, for those of its requests that need no waiting."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the life of the server."""
        if scope["type"] == "http" and scope["path"] in ADMISSION_PATHS:
            await self.mutate(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(
    source: Source,
    settings: OperatorSettings,
    *,
    certificate_expires: Callable[[], datetime],
    drain: Drain,
    checks: Callable[[], Iterable[Check]] | None = None,
    running: Callable[[], AbstractAsyncContextManager[None]] | None = None,
    authorizer: Authorizer | None = None,
    client_certificates: bool = False,
    pull_secrets: PullSecrets | None = None,
    preview_limits: PreviewLimits = DEFAULT_LIMITS,
) -> Application:
    """The application. It keeps `running`, by default the source, going for as long as it runs.

    `checks` are what readiness goes by beside the drain, by default the source's. Without an
    authorizer everybody may see everything; with `client_certificates` /mutate is for those alone
    who showed one. `pull_secrets` are for the images of pods that are admitted; a preview's are
    looked up as nobody.
    """
    run = running or source.running
    look = checks or source.checks

    def all_checks() -> Iterable[Check]:
        yield from look()
        yield drain.check()

    in_flight = InFlight()
    review_budget = MemoryBudget()
    review_log = ReviewLog(log)
    metrics = Metrics(__version__)
    metrics.certificate_expiry.set_function(lambda: certificate_expires().timestamp())
    metrics.policies.set_function(lambda: len(source.view.policies))
    metrics.manifest_problems.set_function(lambda: len(source.problems))
    metrics.in_flight.set_function(lambda: in_flight.count)

    # Two resolvers: a preview names any namespace that it likes, and so uses any share.
    resolver, shown_resolver = (new_resolver(metrics.count_refused_dns_lookup) for _ in range(2))
    metrics.stuck_dns_lookups.set_function(lambda: resolver.stuck + shown_resolver.stuck)
    images = ImageLookup(pull_secrets, count=metrics.count_look_up, resolver=resolver)
    shown_images = ImageLookup(count=metrics.count_look_up, resolver=shown_resolver)
    previewer = Previewer(
        lambda: source.view, settings, shown_images, preview_limits, metrics.count_preview
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with (
            run(),
            aclosing(images),
            aclosing(shown_images),
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
        dependencies=[Depends(in_flight.exclude)],
        # Their pages load scripts from elsewhere; the document itself is at /openapi.json.
        docs_url=None,
        redoc_url=None,
    )
    app.state.in_flight = in_flight
    app.state.review_budget = review_budget
    app.state.previewer = previewer
    mutate = AdmissionHandler(
        source, settings, metrics, review_log, drain, in_flight, review_budget, images
    )
    app.admission_server = AdmissionServer(mutate.handle_sync, client_certificates)
    app.mutate = (
        DemandClientCertificate(mutate, metrics.count_refused) if client_certificates else mutate
    )
    guarded = [Depends(guard(authorizer))]
    # Not the reviews' own: previews wait for one another, each with a body of up to 4 MiB.
    app.state.preview_budget = MemoryBudget()
    app.include_router(preview_router(previewer, app.state.preview_budget), dependencies=guarded)
    app.include_router(
        probes_router(all_checks, {"version": __version__, "python": platform.python_version()})
    )
    app.include_router(page_router(), dependencies=[Depends(guard(authorizer, BASIC))])

    @app.get(
        "/metrics",
        summary="Prometheus metrics",
        response_class=Response,
        dependencies=guarded,
    )
    async def get_metrics() -> Response:
        metrics.set_checks(all_checks())
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return app
