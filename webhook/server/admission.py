"""The handler of POST /mutate. All decisions are made in `webhook.core`.

Every request that contains the uid of a review is answered 200 with an allowed review, so that the
API server never applies the `failurePolicy`. The protocol passes a review that arrived whole to
`handle_sync`, which answers it if no look-up is needed. All other requests reach the ASGI
application, which has no models and no dependency injection, because both cost more than a
decision.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from time import monotonic

from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from webhook.cluster.source import Source
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decide import OperatorSettings
from webhook.core.admission.handler import Answer, UnreadableReviewError, admit, allow_unread
from webhook.core.admission.review import uid_of
from webhook.core.reasons import Reason
from webhook.images.lookup import ImageLookup
from webhook.server.drain import Drain
from webhook.server.limits import DEFAULT_LIMITS, Limits
from webhook.server.load_shedding import InFlight, MemoryBudget
from webhook.server.metrics import Metrics
from webhook.server.protocol import TIMING_KEY, RequestTiming, should_close
from webhook.server.request_body import MAX_BODY_BYTES, MAX_REQUEST_BYTES, Body
from webhook.server.request_head import answer_seconds, is_json
from webhook.server.responses import CLOSE, JSON, Header, refuse, respond
from webhook.server.review_log import ReviewLog, printable

log = logging.getLogger(__name__)

NAMESPACE_LOOKUP_SECONDS = 0.5
"""Maximum time for the look-up of a namespace."""
_NAMESPACE_LOOKUP_SHARE = 0.25
"""Maximum share of a review's deadline for the look-up of a namespace."""
IMAGE_LOOKUP_SHARE = 0.6
"""Maximum share of a review's deadline for image look-ups. A look-up that takes longer continues,
and the next pod uses its result."""
_GUARANTEED_DECISION_BYTES = 256 * 1024
"""Reviews up to this length are decided on even if the memory budget is exhausted. The decision on
a longer one, and its answer, may need as much memory as the review itself."""

_ALLOW = (b"allow", b"POST")


class AdmissionHandler:
    """The ASGI application behind /mutate, and the synchronous path that the protocol uses."""

    def __init__(
        self,
        source: Source,
        settings: OperatorSettings,
        metrics: Metrics,
        review_log: ReviewLog,
        drain: Drain,
        in_flight: InFlight,
        budget: MemoryBudget,
        images: ImageLookup | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._limits = limits
        self._images = images
        self._source = source
        self._settings = settings
        self._metrics = metrics
        self._review_log = review_log
        self._drain = drain
        self._in_flight = in_flight
        self._budget = budget
        self._cache = DecisionCache()

    def handle_sync(self, review: bytes, deadline: float, received_at: float) -> bytes | None:
        """Return the answer to a whole review, or None if the ASGI application has to answer it.

        `deadline` is in seconds, `received_at` by `time.monotonic`. The result is None if the
        review needs a look-up, or if handling it raises. Nothing is counted or logged then, because
        the ASGI application handles the review from the beginning.
        """
        try:
            answer = self._admit(review, monotonic() - received_at, deadline)
            if answer.decision.missing_images or answer.unknown_namespace is not None:
                return None
        except Exception:
            return None
        self._drain.reviews += 1
        self._record(answer, review, received_at)
        return answer.body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "POST":
            await self._refuse(send, 405, "POST an AdmissionReview here", CLOSE, _ALLOW)
            return
        if not is_json(scope["headers"]):
            await self._refuse(send, 415, "send Content-Type: application/json", CLOSE)
            return
        self._drain.reviews += 1
        body = Body(self._budget)
        try:
            answer = await self._review(scope, receive, send, body)
        finally:
            body.release()
        if answer is not None:
            await self._send(send, answer)

    async def _review(self, scope: Scope, receive: Receive, send: Send, body: Body) -> bytes | None:
        """Return the answer to a review.

        Return None if the client has disconnected, or if an HTTP error was sent instead.
        """
        deadline = answer_seconds(scope["query_string"])
        timing: RequestTiming | None = scope.get("state", {}).get(TIMING_KEY)
        queued = monotonic() - timing.received_at if timing else 0.0
        if timing and timing.complete:
            received_at = timing.received_at
            # No timeout: a timer would cost more than reading a body that is complete.
            await body.read(receive)
        else:
            await self._read_body(body, receive, self._body_timeout(deadline) - queued)
            received_at = monotonic()
        if body.disconnected:
            return None
        if body.length > MAX_REQUEST_BYTES:
            message = f"the body is longer than {MAX_REQUEST_BYTES} bytes"
            await self._refuse(send, 413, message, CLOSE)
            return None
        start = monotonic()
        try:
            answer = await self._answer(body, start, queued, deadline)
        except UnreadableReviewError as error:
            if body.complete:
                await self._refuse(send, 400, str(error))
            else:
                await self._refuse(send, 408, str(error), CLOSE)
            return None
        self._record(answer, body.data, received_at)
        return answer.body

    async def _send(self, send: Send, answer: bytes) -> None:
        """Send an answer. It counts against the memory budget until the client has read it.

        Call this when the review itself is no longer referenced: the client may read slowly.
        """
        close = (CLOSE,) if should_close(self._limits.goaway_chance) else ()
        with self._budget.reserve() as add:
            add(len(answer))
            await respond(send, 200, answer, JSON, *close)

    async def _read_body(self, body: Body, receive: Receive, seconds: float) -> None:
        """Read a body that is not complete yet. Until it is, it does not count as in flight."""
        excluded = self._in_flight.excluded
        excluded.add(body)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await body.read(receive)
        finally:
            excluded.discard(body)

    async def _answer(self, body: Body, start: float, queued: float, deadline: float) -> Answer:
        """Return the answer, with look-ups where it needs them.

        An internal error also gives an answer. Raises only UnreadableReviewError.
        """
        try:
            answer = self._allow_unread(body, deadline) or self._admit(body.data, queued, deadline)
            if answer.unknown_namespace is not None and not self._budget.exhausted:
                answer = await self._retry_with_namespace(body.data, answer, deadline)
            if answer.decision.missing_images and self._images is not None:
                left = deadline - queued - (monotonic() - start)
                seconds = max(min(deadline * IMAGE_LOOKUP_SHARE, left), 0.0)
                known = await self._images.find(answer.decision.missing_images, seconds)
                view = self._source.view
                answer = admit(body.data, view.policies, view, self._settings, known, self._cache)
        except UnreadableReviewError:
            raise
        except Exception as error:
            why = f"the pod was admitted unchanged: {error!r}"
            return replace(allow_unread(body.data, Reason.INTERNAL_ERROR, why), error=error)
        return answer

    def _allow_unread(self, body: Body, deadline: float) -> Answer | None:
        """Return the answer to a review that cannot or must not be decoded, otherwise None."""
        if body.over_budget or (
            self._budget.exhausted and body.length > _GUARANTEED_DECISION_BYTES
        ):
            why = f"other reviews and answers occupy {self._budget.used_bytes} bytes of memory"
            return allow_unread(body.data, Reason.OVERLOADED, why)
        if not body.complete:
            seconds = self._body_timeout(deadline)
            why = f"only {body.length} bytes of the review arrived within {seconds:.2g} s"
            return allow_unread(body.data, Reason.DEADLINE_EXCEEDED, why)
        if body.length > MAX_BODY_BYTES:
            why = f"the review has {body.length} bytes, and podsettle reads up to {MAX_BODY_BYTES}"
            return allow_unread(body.data, Reason.UNSUPPORTED_REVIEW, why)
        return None

    def _admit(self, review: bytes, queued: float, deadline: float) -> Answer:
        """Return the answer to a review, unread if the server is overloaded.

        Raises UnreadableReviewError.
        """
        if self._in_flight.is_overloaded(queued, deadline):
            why = (
                f"{self._in_flight.review_count} reviews are under way, and this one waited "
                f"{queued:.2g} s: more reviews arrive than can be answered in time"
            )
            return allow_unread(review, Reason.OVERLOADED, why)
        view = self._source.view
        return admit(review, view.policies, view, self._settings, cache=self._cache)

    async def _retry_with_namespace(self, body: bytes, answer: Answer, deadline: float) -> Answer:
        """Look up the unknown namespace and answer again. Return `answer` if it was not found."""
        name = answer.unknown_namespace or ""
        seconds = min(NAMESPACE_LOOKUP_SECONDS, deadline * _NAMESPACE_LOOKUP_SHARE)
        found = await self._source.fetch_namespace(name, seconds)
        if not found:
            return answer
        view = self._source.view
        return admit(body, view.policies, view, self._settings, cache=self._cache)

    def _record(self, answer: Answer, review: bytes, received_at: float) -> None:
        """Count and log an answer. Raises nothing, because the answer must still be sent."""
        try:
            self._metrics.reviews.count(answer.decision, monotonic() - received_at)
            self._log(answer, review)
        except Exception:
            log.exception("internal error: an answer was not counted or not logged")

    def _log(self, answer: Answer, review: bytes) -> None:
        """Log a pod that a policy covers, and an internal error."""
        request = answer.request
        if answer.error is not None:
            log.error(
                "internal error: the pod was admitted unchanged (uid %s)",
                printable((request.uid if request else uid_of(review)) or "unknown"),
                exc_info=answer.error,
            )
        elif request is not None and answer.decision.policies and self._review_log.enabled:
            namespace, pod = request.namespace or "", request.pod.name
            self._review_log.record(request.uid, namespace, pod, answer.decision.log_summary)

    async def _refuse(self, send: Send, status: int, message: str, *headers: Header) -> None:
        self._metrics.count_refused(status)
        await refuse(send, status, message, *headers)

    def _body_timeout(self, deadline: float) -> float:
        """Return the seconds within which a body must arrive."""
        return min(deadline, self._limits.body_timeout_seconds)
