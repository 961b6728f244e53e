"""The objects that the application and the HTTP protocol share.

Only this module builds them. `webhook.cli.serve` calls it for `podsettle serve`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

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
from webhook.server.page.view_route import encode_view
from webhook.server.preview.previewer import Previewer
from webhook.server.reviews.body import MemoryBudget
from webhook.server.reviews.handler import ReviewHandler
from webhook.server.reviews.log import ReviewLog
from webhook.tasks import supervise
from webhook.tls.source import CertificateSource

if TYPE_CHECKING:
    # A server without a cluster imports no Kubernetes client.
    from webhook.cluster.token_review import ClusterAuthorizer


class ClusterParts(NamedTuple):
    """The components that depend on the cluster, or on the manifests that replace it."""

    source: Source
    certificates: CertificateSource
    checks: Callable[[], Iterable[Check]]
    """Returns the readiness checks, except that of the shutdown."""
    running: Callable[[], AbstractAsyncContextManager[None]]
    """Returns a context manager. The components work while its block runs."""
    authorizer: ClusterAuthorizer | None = None
    """Checks the tokens of clients of /preview, /view and /metrics, or None if they need none."""
    pull_secrets: PullSecrets | None = None
    """Reads pull secrets for images of admitted pods, but never for images in previews."""


class Components:
    """All objects that `create_app` and the HTTP protocol need."""

    def __init__(
        self,
        parts: ClusterParts,
        settings: OperatorSettings,
        *,
        drain: Drain,
        needs_certificate: bool = False,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Build the components of a server.

        `needs_certificate` makes /mutate refuse clients that presented no certificate.
        """
        self.parts = parts
        self._drain = drain
        source = parts.source
        self.metrics = Metrics(__version__)
        # Previews send no credentials, and their look-ups do not count against the limits of pods.
        self._images, self._preview_images = (
            ImageLookup(credentials, count=self.metrics.count_image_lookup)
            for credentials in (parts.pull_secrets, None)
        )
        self.previewer = Previewer(
            lambda: source.view, settings, self._preview_images, limits.preview
        )
        self.view_answer = lambda: encode_view(source.view, settings.docs_url, limits.view)
        self._review_log = ReviewLog()
        handler = ReviewHandler(
            source,
            settings,
            metrics=self.metrics,
            review_log=self._review_log,
            drain=drain,
            budget=MemoryBudget(limits.memory_bytes),
            images=self._images,
            limits=limits,
        )
        self.review_server = ReviewServer(
            handler, lambda: all(check.ready for check in self.checks()), needs_certificate
        )

    def checks(self) -> Iterable[Check]:
        """Yield the readiness checks."""
        yield from self.parts.checks()
        yield self._drain.check()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Return a context manager. The components work while its block runs."""
        async with (
            self.parts.running(),
            aclosing(self._images),
            aclosing(self._preview_images),
            supervise(lambda: log_check_changes(self.checks)),
        ):
            try:
                yield
            finally:
                self._review_log.flush()

    async def set_gauges(self) -> None:
        """Set the gauges of the metrics.

        Call it on the event loop before each scrape: it reads what the event loop changes, and the
        metrics are written in a thread.
        """
        metrics, source = self.metrics, self.parts.source
        metrics.certificate_expiry.set(self.parts.certificates.expires.timestamp())
        metrics.policies.set(len(source.view.policies))
        metrics.manifest_problems.set(len(source.problems))
        metrics.in_flight.set(self.review_server.requests())
        metrics.tasks.set(len(asyncio.all_tasks()))
        metrics.set_checks(self.checks())
        await metrics.needed_policies.refresh(source.view)
