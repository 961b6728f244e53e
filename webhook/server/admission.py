"""The handler of POST /mutate. All decisions are made in `webhook.core`.

The answer to every request that contains a review's uid is 200 and allows the pod, so that the API
server never applies the `failurePolicy`. The protocol passes a completely received review to
`handle_sync`, which answers it if no look-up is needed. All other requests reach the ASGI
application. It uses neither pydantic models nor dependency injection, because both take longer than
a decision.
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
from webhook.core.images import ImageResolver
from webhook.core.reasons import Reason
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
"""Maximum share of a review's deadline for image look-ups. The review stops waiting after that. The
look-up continues, and the next pod with this image uses its result."""
_GUARANTEED_DECISION_BYTES = 256 * 1024
"""Reviews up to this length are decoded even if the memory budget is exhausted. To decode and
answer a longer review may take as much additional memory as the review itself."""

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
        images: ImageResolver | None = None,
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

    def handle_sync(
        self, review: bytes, deadline_seconds: float, received_at: float
    ) -> bytes | None:
        """Return the answer to a complete review, or None if the ASGI application must answer it.

        The result is None if the review needs a look-up, or if an error occurs. In this case
        nothing is counted or logged, because the ASGI application handles the review from the
        beginning. `received_at` is a time of `time.monotonic`.
        """
        try:
            answer = self._admit_or_shed(review, monotonic() - received_at, deadline_seconds)
            if answer.decision.missing_images or answer.unknown_namespace is not None:
                return None
        except Exception:
            return None
        self._drain.reviews += 1
        self._record(answer, review, received_at)
        return answer.body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request to /mutate."""
        if scope["method"] != "POST":
            await self._refuse(send, 405, "POST an AdmissionReview here", CLOSE, _ALLOW)
            return
        if not is_json(scope["headers"]):
            await self._refuse(send, 415, "send Content-Type: application/json", CLOSE)
            return
        self._drain.reviews += 1
        body = Body(self._budget)
        try:
            answer = await self._read_and_answer(scope, receive, send, body)
        finally:
            body.release()
        if answer is not None:
            await self._send(send, answer)

    async def _read_and_answer(
        self, scope: Scope, receive: Receive, send: Send, body: Body
    ) -> bytes | None:
        """Read a review, and return the answer to it.

        Returns None if the client has disconnected, or if an HTTP error was sent instead.
        """
        deadline_seconds = answer_seconds(scope["query_string"])
        timing: RequestTiming | None = scope.get("state", {}).get(TIMING_KEY)
        queued_seconds = monotonic() - timing.received_at if timing else 0.0
        if timing and timing.complete:
            received_at = timing.received_at
            # The body is complete, so no timeout is needed. A timer would be slower than the read.
            await body.read(receive)
        else:
            await self._read_body(
                body, receive, self._body_timeout(deadline_seconds) - queued_seconds
            )
            received_at = monotonic()
        if body.disconnected:
            return None
        if body.length > MAX_REQUEST_BYTES:
            message = f"the body is longer than {MAX_REQUEST_BYTES} bytes"
            await self._refuse(send, 413, message, CLOSE)
            return None
        started_at = monotonic()
        try:
            answer = await self._answer_with_lookups(
                body, started_at, queued_seconds, deadline_seconds
            )
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

        The client may read slowly. Therefore callers release the review before they call this.
        """
        close = (CLOSE,) if should_close(self._limits.goaway_chance) else ()
        with self._budget.reserve() as add:
            add(len(answer))
            await respond(send, 200, answer, JSON, *close)

    async def _read_body(self, body: Body, receive: Receive, seconds: float) -> None:
        """Read an incomplete body. The request counts against the limit only after that."""
        excluded = self._in_flight.excluded
        excluded.add(body)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await body.read(receive)
        finally:
            excluded.discard(body)

    async def _answer_with_lookups(
        self, body: Body, started_at: float, queued_seconds: float, deadline_seconds: float
    ) -> Answer:
        """Return the answer to a review, after the look-ups that it needs.

        If an internal error occurs, the answer admits the pod unchanged. Raises only
        UnreadableReviewError.
        """
        try:
            answer = self._allow_without_decoding(body, deadline_seconds) or self._admit_or_shed(
                body.data, queued_seconds, deadline_seconds
            )
            if answer.unknown_namespace is not None and not self._budget.exhausted:
                answer = await self._retry_with_namespace(body.data, answer, deadline_seconds)
            if answer.decision.missing_images and self._images is not None:
                remaining_seconds = deadline_seconds - queued_seconds - (monotonic() - started_at)
                seconds = max(min(deadline_seconds * IMAGE_LOOKUP_SHARE, remaining_seconds), 0.0)
                images = await self._images.find(answer.decision.missing_images, seconds)
                view = self._source.view
                answer = admit(body.data, view.policies, view, self._settings, images, self._cache)
        except UnreadableReviewError:
            raise
        except Exception as error:
            message = f"the pod was admitted unchanged: {error!r}"
            return replace(allow_unread(body.data, Reason.INTERNAL_ERROR, message), error=error)
        return answer

    def _allow_without_decoding(self, body: Body, deadline_seconds: float) -> Answer | None:
        """Return an answer that allows a review which cannot or must not be decoded, else None."""
        if body.over_budget or (
            self._budget.exhausted and body.length > _GUARANTEED_DECISION_BYTES
        ):
            message = f"other reviews and answers occupy {self._budget.used_bytes} bytes of memory"
            return allow_unread(body.data, Reason.OVERLOADED, message)
        if not body.complete:
            seconds = self._body_timeout(deadline_seconds)
            message = f"only {body.length} bytes of the review arrived within {seconds:.2g} s"
            return allow_unread(body.data, Reason.DEADLINE_EXCEEDED, message)
        if body.length > MAX_BODY_BYTES:
            message = (
                f"the review has {body.length} bytes, and podsettle reads up to {MAX_BODY_BYTES}"
            )
            return allow_unread(body.data, Reason.UNSUPPORTED_REVIEW, message)
        return None

    def _admit_or_shed(
        self, review: bytes, queued_seconds: float, deadline_seconds: float
    ) -> Answer:
        """Return the answer to a review. Do not decode the review if the server is overloaded.

        Raises UnreadableReviewError.
        """
        if self._in_flight.is_overloaded(queued_seconds, deadline_seconds):
            message = (
                f"{self._in_flight.review_count} reviews are under way, and this one waited "
                f"{queued_seconds:.2g} s: more reviews arrive than can be answered in time"
            )
            return allow_unread(review, Reason.OVERLOADED, message)
        view = self._source.view
        return admit(review, view.policies, view, self._settings, cache=self._cache)

    async def _retry_with_namespace(
        self, body: bytes, answer: Answer, deadline_seconds: float
    ) -> Answer:
        """Look up the unknown namespace and decide again. Return `answer` if the look-up fails."""
        name = answer.unknown_namespace or ""
        seconds = min(NAMESPACE_LOOKUP_SECONDS, deadline_seconds * _NAMESPACE_LOOKUP_SHARE)
        namespace = await self._source.fetch_namespace(name, seconds)
        if not namespace:
            return answer
        view = self._source.view
        return admit(body, view.policies, view, self._settings, cache=self._cache)

    def _record(self, answer: Answer, review: bytes, received_at: float) -> None:
        """Count and log an answer. Raises no error, because the answer must still be sent."""
        try:
            self._metrics.reviews.count(answer.decision, monotonic() - received_at)
            self._log(answer, review)
        except Exception:
            log.exception("internal error: an answer was not counted or not logged")

    def _log(self, answer: Answer, review: bytes) -> None:
        """Log the answer if an internal error occurred, or if a policy covers the pod."""
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
        """Count a refused request, and send it an HTTP error."""
        self._metrics.count_refused(status)
        await refuse(send, status, message, *headers)

    def _body_timeout(self, deadline_seconds: float) -> float:
        """Return the number of seconds within which the body of a review must arrive."""
        return min(deadline_seconds, self._limits.body_timeout_seconds)
