"""The handler of reviews, from a body to an answer. All decisions are made in `webhook.core`.

The answer to every request that contains a review's uid allows the pod, so that the API server
never applies the `failurePolicy`. `ReviewHandler` knows neither ASGI nor sockets. The protocol of
the port of reviews and the FastAPI route on the web port call it, so both give the same answers.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import NamedTuple

from webhook.cluster.source import NamespaceLookup, Source
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decider import Decider, OperatorSettings
from webhook.core.admission.handler import (
    Answer,
    UnreadableReviewError,
    admit,
    admit_again,
    allow_unread,
)
from webhook.core.admission.review import uid_of
from webhook.core.reasons import Reason
from webhook.images.lookup import ImageLookup
from webhook.server.drain import Drain
from webhook.server.limits import DEFAULT_LIMITS, Limits
from webhook.server.metrics import Metrics
from webhook.server.reviews.body import MemoryBudget, ReviewBody
from webhook.server.reviews.log import ReviewLog, one_line
from webhook.server.reviews.request import Refusal

log = logging.getLogger(__name__)

NAMESPACE_LOOKUP_SECONDS = 0.5
"""Maximum time for the look-up of a namespace."""
NAMESPACE_LOOKUP_SHARE = 0.25
"""Maximum share of a review's deadline for the look-up of a namespace."""
IMAGE_LOOKUP_SHARE = 0.6
"""Maximum share of a review's deadline for image look-ups. The review stops waiting after that. The
look-up continues, and the next pod with this image uses its result."""
GUARANTEED_DECISION_BYTES = 256 * 1024
"""Reviews up to this length are decoded even if the memory budget is exhausted. To decode and
answer a longer review may take as much additional memory as the review itself."""


class ReviewTiming(NamedTuple):
    """The times from which the handler derives how long a review has queued and may still take."""

    began_at: float
    """When the loop began to read the first byte of the request, by `time.monotonic`. On the web
    port, when its head was read."""
    received_at: float
    """The same of the last byte of the review."""
    deadline_seconds: float
    """The time within which podsettle must answer."""

    @property
    def remaining_seconds(self) -> float:
        """The part of this time that is left, or 0."""
        return max(self.began_at + self.deadline_seconds - monotonic(), 0.0)


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
        budget: MemoryBudget,
        images: ImageLookup | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._source = source
        self._decider = Decider(settings, DecisionCache())
        self.drain = drain
        self.budget = budget
        self.limits = limits
        self.count_refused = metrics.count_refused
        """Counts a request that is refused with a status."""
        self._metrics = metrics
        self._review_log = review_log
        self._images = images

    def answer(
        self, body: bytes, timing: ReviewTiming, unread: tuple[Reason, str] | None = None
    ) -> Answer | Refusal:
        """Return the answer to a complete body, or the refusal of one without a uid.

        If the answer is `missing` something, call `look_up` with it, and send what that returns.
        `unread` is why the body is not decoded. It may then be incomplete.
        """
        self.drain.last_review_at = timing.received_at
        unread = unread or self._overload(timing)
        try:
            answer = self._admit(body) if unread is None else allow_unread(body, *unread)
        except UnreadableReviewError as error:
            return Refusal(400, str(error))
        if not answer.missing:
            self._record(answer, timing)
        return answer

    def answer_body(self, body: ReviewBody, timing: ReviewTiming) -> Answer | Refusal:
        """Return the same for a body that arrived in pieces and may be incomplete."""
        unread = None
        if body.over_budget or (self.budget.exhausted and body.length > GUARANTEED_DECISION_BYTES):
            message = f"other reviews and answers occupy {self.budget.used_bytes} bytes of memory"
            unread = Reason.OVERLOADED, message
        elif not body.complete:
            seconds = self.body_timeout(timing.deadline_seconds)
            message = f"only {body.length} bytes of the review arrived within {seconds:.2g} s"
            unread = Reason.DEADLINE_EXCEEDED, message
        elif body.length > self.limits.max_review_bytes:
            message = (
                f"the review has {body.length} bytes, "
                f"and podsettle reads up to {self.limits.max_review_bytes}"
            )
            unread = Reason.UNSUPPORTED_REVIEW, message
        answer = self.answer(body.data, timing, unread)
        if isinstance(answer, Refusal) and not body.complete:
            return answer._replace(status=408)
        return answer

    async def look_up(self, answer: Answer, timing: ReviewTiming, client: str) -> Answer:
        """Look up what an answer is missing, and return a better one.

        `client` is the client's address, which has a share of the look-ups of namespaces. Raises
        nothing: after an internal error, the pod is admitted unchanged.
        """
        try:
            answer = await self._look_up(answer, timing, client)
        except Exception as error:
            answer = _allow_after_error(answer.review, error)
        self._record(answer, timing)
        return answer

    def body_timeout(self, deadline_seconds: float) -> float:
        """Return the number of seconds within which the body of a review must arrive.

        After this time, call `answer_body` with the incomplete body.
        """
        return min(deadline_seconds, self.limits.body_timeout_seconds)

    def _admit(self, body: bytes) -> Answer:
        """Return the answer to a review. Raises only UnreadableReviewError."""
        try:
            return admit(body, self._decider, self._source.view)
        except UnreadableReviewError:
            raise
        except Exception as error:
            return _allow_after_error(body, error)

    def _overload(self, timing: ReviewTiming) -> tuple[Reason, str] | None:
        """Return why a review is not decoded, if it was queued for too long."""
        queued_seconds, seconds = monotonic() - timing.received_at, timing.deadline_seconds
        limits = self.limits
        if queued_seconds <= min(seconds * limits.max_queue_share, limits.max_queue_seconds):
            return None
        return Reason.OVERLOADED, (
            f"this review waited {queued_seconds:.2g} s of the {seconds:.2g} s that its timeout "
            "leaves: more reviews arrive than can be answered in time"
        )

    async def _look_up(self, answer: Answer, timing: ReviewTiming, client: str) -> Answer:
        name = answer.decision.missing_namespace
        if name and not self.budget.exhausted:
            share = min(NAMESPACE_LOOKUP_SECONDS, timing.deadline_seconds * NAMESPACE_LOOKUP_SHARE)
            seconds = min(share, timing.remaining_seconds)
            lookup = await self._source.fetch_namespace(name, client, seconds)
            self._metrics.namespace_lookups.labels(lookup).inc()
            if lookup is NamespaceLookup.FOUND:
                answer = admit_again(answer, self._decider, self._source.view)
        if answer.decision.missing_images and self._images is not None:
            share = timing.deadline_seconds * IMAGE_LOOKUP_SHARE
            seconds = min(share, timing.remaining_seconds)
            images = await self._images.find(answer.decision.missing_images, seconds)
            answer = admit_again(answer, self._decider, self._source.view, images)
        return answer

    def _record(self, answer: Answer, timing: ReviewTiming) -> None:
        """Count and log an answer. Raises nothing, as the answer must still be sent."""
        decision, request = answer.decision, answer.request
        dry_run = request is not None and bool(request.dry_run)
        try:
            seconds = monotonic() - timing.received_at
            self._metrics.reviews.count(decision, seconds, dry_run=dry_run)
            if answer.error is not None:
                self._review_log.flush()
                self._log_error(answer)
            elif request is not None and (decision.policies or decision.leaves_unevaluated):
                self._review_log.record(request, decision)
        except Exception:
            log.exception("internal error: an answer was not counted or not logged")

    def _log_error(self, answer: Answer) -> None:
        request = answer.request
        names = f"{request.namespace}/{request.pod_name}" if request else "unknown"
        log.error(
            "internal error: the pod was admitted unchanged (uid %s pod %s)",
            one_line((request.uid if request else uid_of(answer.review)) or "unknown"),
            one_line(names, 512),
            exc_info=answer.error,
        )


def _allow_after_error(review: bytes, error: Exception) -> Answer:
    """Admit a pod unchanged after an internal error. Raises only UnreadableReviewError."""
    message = f"the pod was admitted unchanged: {error!r}"
    return allow_unread(review, Reason.INTERNAL_ERROR, message, error)
