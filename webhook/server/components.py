"""The objects that the application and the HTTP protocol share, and the function that builds them.

Only this module builds them. `webhook.cli.serve` calls it for `podsettle serve`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from webhook import __version__
from webhook.cluster.source import Check, Source
from webhook.core.admission.decider import OperatorSettings
from webhook.core.pull_secrets import PullSecrets
from webhook.images.lookup import ImageLookup
from webhook.server.connections.protocol import ReviewServer
from webhook.server.drain import Drain
from webhook.server.health import log_check_changes
from webhook.server.limits import DEFAULT_LIMITS, Limits
from webhook.server.metrics import Metrics
from webhook.server.page.view_route import ViewAnswers
from webhook.server.preview.previewer import Previewer
from webhook.server.reviews.body import MemoryBudget
from webhook.server.reviews.handler import ReviewHandler
from webhook.server.reviews.log import ReviewLog
from webhook.tasks import supervise
from webhook.tls.source import CertificateSource

if TYPE_CHECKING:
    # A server without a cluster imports no Kubernetes client.
    from webhook.cluster.token_review import ClusterAuthorizer


@dataclass(frozen=True, slots=True)
class Components:
    """All objects that `create_app` and the HTTP protocol need."""

    metrics: Metrics
    review_server: ReviewServer
    """What the connections to the port of reviews share, such as the handler of reviews."""
    previewer: Previewer
    view_answers: ViewAnswers
    authorizer: ClusterAuthorizer | None
    """Checks the tokens of clients of /preview, /view and /metrics, or None if they need no
    token."""
    certificates: CertificateSource
    checks: Callable[[], Iterable[Check]]
    """Returns the readiness checks."""
    running: Callable[[], AbstractAsyncContextManager[None]]
    """Returns a context manager. The components work while its block runs."""
    set_gauges: Callable[[], None]
    """Sets the gauges of the metrics. Call it on the event loop before each scrape: it reads what
    the event loop changes, and the metrics are written in a thread."""


def build_components(
    source: Source,
    settings: OperatorSettings,
    *,
    certificates: CertificateSource,
    drain: Drain,
    checks: Callable[[], Iterable[Check]],
    running: Callable[[], AbstractAsyncContextManager[None]],
    authorizer: ClusterAuthorizer | None = None,
    needs_certificate: bool = False,
    pull_secrets: PullSecrets | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Components:
    """Return the components of a server.

    - `checks` returns the readiness checks, except the check of `drain`.
    - `running` returns a context that is active while the server runs.
    - `needs_certificate` makes /mutate refuse clients that presented no certificate.
    - `pull_secrets` are used for images of admitted pods, but never for images in previews.
    """

    def all_checks() -> Iterable[Check]:
        yield from checks()
        yield drain.check()

    review_log = ReviewLog()
    metrics = Metrics(__version__)
    metrics.needed_policies.view = lambda: source.view

    # Previews send no credentials, and their look-ups do not count against the limits of pods.
    images, preview_images = (
        ImageLookup(credentials, count=metrics.count_image_lookup)
        for credentials in (pull_secrets, None)
    )
    previewer = Previewer(lambda: source.view, settings, preview_images, limits.preview)

    @asynccontextmanager
    async def all_running() -> AsyncIterator[None]:
        async with (
            running(),
            aclosing(images),
            aclosing(preview_images),
            supervise(lambda: log_check_changes(all_checks)),
        ):
            try:
                yield
            finally:
                review_log.flush()

    handler = ReviewHandler(
        source,
        settings,
        metrics=metrics,
        review_log=review_log,
        drain=drain,
        budget=MemoryBudget(limits.memory_bytes),
        images=images,
        limits=limits,
    )
    review_server = ReviewServer(
        handler, lambda: all(check.ready for check in all_checks()), needs_certificate
    )

    def set_gauges() -> None:
        metrics.certificate_expiry.set(certificates.expires.timestamp())
        metrics.policies.set(len(source.view.policies))
        metrics.manifest_problems.set(len(source.problems))
        metrics.in_flight.set(review_server.requests())
        metrics.tasks.set(len(asyncio.all_tasks()))
        metrics.set_checks(all_checks())

    return Components(
        metrics=metrics,
        review_server=review_server,
        previewer=previewer,
        view_answers=ViewAnswers(lambda: source.view, settings.docs_url, limits.view),
        authorizer=authorizer,
        certificates=certificates,
        checks=all_checks,
        running=all_running,
        set_gauges=set_gauges,
    )
