"""The handler of reviews, from a body to an answer. All decisions are made in `webhook.core`.

The answer to every request that contains a review's uid is 200 and allows the pod, so that the API
server never applies the `failurePolicy`. `ReviewHandler` knows neither ASGI nor sockets. The
FastAPI route (`mutate`) and the protocol in front of it call the same handler, so both give the
same answers.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import NamedTuple

from msgspec.structs import replace

from webhook.cluster.source import NamespaceLookup, Source
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decider import Decider, OperatorSettings
from webhook.core.admission.handler import Answer, UnreadableReviewError, admit, allow_unread
from webhook.core.admission.review import uid_of
from webhook.core.images import ImageResolver
from webhook.core.reasons import Reason
from webhook.server.drain import Drain
from webhook.server.limits import DEFAULT_LIMITS, Limits
from webhook.server.metrics import Metrics
from webhook.server.reviews.body import ReviewBody
from webhook.server.reviews.http_answer import JSON_TYPE, HttpAnswer, refusal
from webhook.server.reviews.load_shedding import InFlight, MemoryBudget
from webhook.server.reviews.log import ReviewLog, printable

log = logging.getLogger(__name__)

RECEIVED_AT_KEY = "received_at"
"""The key of a time of `time.monotonic` in the state of an ASGI request: when the request was
received. The server that calls the FastAPI route may set it, so that queueing time counts."""

NAMESPACE_LOOKUP_SECONDS = 0.5
"""Maximum time for the look-up of a namespace."""
NAMESPACE_LOOKUP_SHARE = 0.25
"""Maximum share of a review's deadline for the look-up of a namespace."""
IMAGE_LOOKUP_SHARE = 0.6
"""Maximum share of a review's deadline for image look-ups. The review stops waiting after that. The
look-up continues, and the next pod with this image uses its result."""
GUARANTEED_DECISION_BYTES = 256 * 1024
"""Reviews up to this length are decoded even if the memory budget is exhausted. To decode and
answer a longer review may take as much additional memory as the review itself, so only
`ReviewHandler.handle` answers it."""


class ReviewTiming(NamedTuple):
    """The times from which the handler derives how long a review has queued and may still take."""

    received_at: float
    """When the last byte of the review was ready to be read, by `time.monotonic`."""
    deadline_seconds: float
    """The time within which podsettle must answer."""


class ReviewHandler:
    """Answers reviews. Use it on the event loop only."""

    def __init__(
        self,
        source: Source,
        settings: OperatorSettings,
        *,
        metrics: Metrics,
        review_log: ReviewLog,
        drain: Drain,
        in_flight: InFlight,
        budget: MemoryBudget,
        images: ImageResolver | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._source = source
        self._decider = Decider(settings, DecisionCache())
        self._metrics = metrics
        self._review_log = review_log
        self._drain = drain
        self._in_flight = in_flight
        self._budget = budget
        self._images = images
        self._limits = limits

    def handle_now(self, body: bytes, timing: ReviewTiming) -> bytes | None:
        """Return the JSON answer to a complete review, or None if `handle` must answer it.

        The review must not be longer than GUARANTEED_DECISION_BYTES.
        The result is None if the review needs a look-up, or if an error occurs. In this case
        nothing is counted or logged, because `handle` begins again with the same review.
        """
        try:
            answer = self._admit_or_shed(body, timing)
            if answer.decision.missing_images or answer.unknown_namespace is not None:
                return None
        except Exception:
            return None
        self._drain.reviews += 1
        self._record(answer, body, timing)
        return answer.body

    async def handle(self, body: ReviewBody, timing: ReviewTiming, client: str) -> HttpAnswer:
        """Return the answer to any body: a review, perhaps incomplete, or no review at all.

        The answer waits for the look-ups that it needs. The caller releases the body. `client` is
        the client's address, which has a share of the look-ups of namespaces.
        """
        self._drain.reviews += 1
        if body.too_long:
            message = f"the body is longer than {self._limits.max_body_bytes} bytes"
            return self._refuse(413, message, close=True)
        try:
            answer = await self._answer(body, timing, client)
        except UnreadableReviewError as error:
            return self._refuse(400 if body.complete else 408, str(error), close=not body.complete)
        self._record(answer, body.data, timing)
        return HttpAnswer(200, answer.body, JSON_TYPE, close=False)

    def body_timeout(self, deadline_seconds: float) -> float:
        """Return the number of seconds within which the body of a review must arrive.

        After this time, call `handle` with the incomplete body.
        """
        return min(deadline_seconds, self._limits.body_timeout_seconds)

    async def _answer(self, body: ReviewBody, timing: ReviewTiming, client: str) -> Answer:
        """Return the answer to a review, after the look-ups that it needs.

        If an internal error occurs, the answer admits the pod unchanged. Raises only
        UnreadableReviewError.
        """
        try:
            answer = self._allow_without_decoding(body, timing) or self._admit_or_shed(
                body.data, timing
            )
            with self._in_flight.waiting_review():
                return await self._look_up(answer, body.data, timing, client)
        except UnreadableReviewError:
            raise
        except Exception as error:
            message = f"the pod was admitted unchanged: {error!r}"
            return replace(allow_unread(body.data, Reason.INTERNAL_ERROR, message), error=error)

    def _allow_without_decoding(self, body: ReviewBody, timing: ReviewTiming) -> Answer | None:
        """Return an answer that allows a review which cannot or must not be decoded, else None."""
        if body.over_budget or (self._budget.exhausted and body.length > GUARANTEED_DECISION_BYTES):
            message = f"other reviews and answers occupy {self._budget.used_bytes} bytes of memory"
            return allow_unread(body.data, Reason.OVERLOADED, message)
        if not body.complete:
            seconds = self.body_timeout(timing.deadline_seconds)
            message = f"only {body.length} bytes of the review arrived within {seconds:.2g} s"
            return allow_unread(body.data, Reason.DEADLINE_EXCEEDED, message)
        max_bytes = self._limits.max_review_bytes
        if body.length > max_bytes:
            message = f"the review has {body.length} bytes, and podsettle reads up to {max_bytes}"
            return allow_unread(body.data, Reason.UNSUPPORTED_REVIEW, message)
        return None

    def _admit_or_shed(self, review: bytes, timing: ReviewTiming) -> Answer:
        """Return the answer to a review. Do not decode the review if the server is overloaded.

        Raises UnreadableReviewError.
        """
        queued_seconds = monotonic() - timing.received_at
        if self._in_flight.is_overloaded(queued_seconds, timing.deadline_seconds):
            message = (
                f"{self._in_flight.reviews} reviews are under way, and this one waited "
                f"{queued_seconds:.2g} s: more reviews arrive than can be answered in time"
            )
            return allow_unread(review, Reason.OVERLOADED, message)
        view = self._source.view
        return admit(review, self._decider, view.policies, view)

    async def _look_up(
        self, answer: Answer, review: bytes, timing: ReviewTiming, client: str
    ) -> Answer:
        """Return `answer`, or a better one after look-ups of the namespace and of images."""
        name = answer.unknown_namespace
        if name is not None and not self._budget.exhausted:
            seconds = min(
                NAMESPACE_LOOKUP_SECONDS, timing.deadline_seconds * NAMESPACE_LOOKUP_SHARE
            )
            lookup = await self._source.fetch_namespace(name, client, seconds)
            self._metrics.count_namespace_lookup(lookup)
            if lookup is NamespaceLookup.FOUND:
                view = self._source.view
                answer = admit(review, self._decider, view.policies, view)
        if answer.decision.missing_images and self._images is not None:
            remaining_seconds = timing.received_at + timing.deadline_seconds - monotonic()
            seconds = max(min(timing.deadline_seconds * IMAGE_LOOKUP_SHARE, remaining_seconds), 0.0)
            images = await self._images.find(answer.decision.missing_images, seconds)
            view = self._source.view
            answer = admit(review, self._decider, view.policies, view, images)
        return answer

    def _record(self, answer: Answer, review: bytes, timing: ReviewTiming) -> None:
        """Count, log and report an answer. Raises nothing, as the answer must still be sent."""
        decision, request = answer.decision, answer.request
        dry_run = request is not None and bool(request.dry_run)
        try:
            seconds = monotonic() - timing.received_at
            self._metrics.reviews.count(answer.rendered, seconds, dry_run=dry_run)
            if answer.error is not None:
                self._review_log.flush()
                self._log_error(answer, review)
            elif request is not None and (decision.policies or decision.leaves_unevaluated):
                self._review_log.record(request, answer.rendered)
        except Exception:
            log.exception("internal error: an answer was not counted or not logged")

    def _log_error(self, answer: Answer, review: bytes) -> None:
        request = answer.request
        log.error(
            "internal error: the pod was admitted unchanged (uid %s)",
            printable((request.uid if request else uid_of(review)) or "unknown"),
            exc_info=answer.error,
        )

    def _refuse(self, status: int, message: str, *, close: bool) -> HttpAnswer:
        """Count a refused request, and return the HTTP error for it."""
        self._metrics.count_refused(status)
        return refusal(status, message, close=close)
