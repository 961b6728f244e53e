"""POST /mutate: the hot path. Bytes in, bytes out, all decisions in `webhook.core`.

Every request that carries the uid of a review is answered 200 with an allowed review, so that no
`failurePolicy` ever comes into play. A review that came whole and needs no waiting is answered at
once, by a connection; an ASGI application without model or dependency injection answers them all.
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
from webhook.server.load_shedding import InFlight, MemoryBudget
from webhook.server.metrics import Metrics
from webhook.server.protocol import TIMING_KEY, RequestTiming, should_close
from webhook.server.request_body import MAX_BODY_BYTES, MAX_REQUEST_BYTES, Body
from webhook.server.request_head import answer_seconds, is_json
from webhook.server.responses import CLOSE, JSON, Header, refuse, respond
from webhook.server.review_log import ReviewLog, printable

log = logging.getLogger(__name__)

BODY_TIMEOUT_SECONDS = 7.0
"""At the most, whatever the query says: who sends a review slowly keeps others from having room."""
_NAMESPACE_LOOKUP_SHARE = 0.25
NAMESPACE_LOOKUP_SECONDS = 0.5
"""How much of the deadline, and how much at the most, goes into asking for a namespace."""

IMAGE_LOOKUP_SHARE = 0.6
"""How much of the deadline may go into looking images up; what comes too late is there for the
next pod."""

_GUARANTEED_DECISION_BYTES = 256 * 1024
"""Bytes of a review. The answer to a longer one, and what it is made of, may take as much as it."""

_ALLOW = (b"allow", b"POST")


class AdmissionHandler:
    """What is behind `/mutate`: an ASGI application, and its short way."""

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
    ) -> None:
        self._images = images
        self._source = source
        self._settings = settings
        self._metrics = metrics
        self._review_log = review_log
        self._drain = drain
        self._in_flight = in_flight
        self._budget = budget
        self._cache = DecisionCache()

    def handle_sync(self, review: bytes, deadline: float, came: float) -> bytes | None:
        """The answer to a review that came whole; None where it takes the application.

        The application is for what has to wait, to be refused, or to be explained. Nothing was
        counted or logged here then: it does all of it again.
        """
        try:
            answer = self._admit(review, monotonic() - came, deadline)
            if answer.decision.missing_images or answer.unknown_namespace is not None:
                return None
        except Exception:
            return None
        self._drain.reviews += 1
        self._record(answer, review, came)
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
        """The answer to a review; None where there is none, or another was sent."""
        deadline = answer_seconds(scope["query_string"])
        timing: RequestTiming | None = scope.get("state", {}).get(TIMING_KEY)
        waited = monotonic() - timing.received_at if timing else 0.0
        if timing and timing.complete:
            came = timing.received_at
            # A timer would cost more than the reading of what is there.
            await body.read(receive)
        else:
            await self._read_body(body, receive, _body_timeout(deadline) - waited)
            came = monotonic()
        if body.disconnected:
            return None
        if body.length > MAX_REQUEST_BYTES:
            await self._refuse(
                send, 413, f"the body is longer than {MAX_REQUEST_BYTES} bytes", CLOSE
            )
            return None
        start = monotonic()
        try:
            answer = await self._answer(body, start, waited, deadline)
        except UnreadableReviewError as error:
            if body.complete:
                await self._refuse(send, 400, str(error))
            else:
                await self._refuse(send, 408, str(error), CLOSE)
            return None
        self._record(answer, body.data, came)
        return answer.body

    async def _send(self, send: Send, answer: bytes) -> None:
        """Send an answer. Of what it was made of nothing is left: the client may read slowly."""
        last = (CLOSE,) if should_close() else ()
        with self._budget.reserve() as add:
            add(len(answer))
            await respond(send, 200, answer, JSON, *last)

    async def _read_body(self, body: Body, receive: Receive, seconds: float) -> None:
        """Read a body that has not come to its end, and is no load until it has."""
        excluded = self._in_flight.excluded
        excluded.add(body)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await body.read(receive)
        finally:
            excluded.discard(body)

    async def _answer(self, body: Body, start: float, waited: float, deadline: float) -> Answer:
        """The answer, whatever happens. Raises UnreadableReviewError, and nothing else."""
        try:
            answer = self._allow_unread(body, deadline) or self._admit(body.data, waited, deadline)
            if answer.unknown_namespace is not None and not self._budget.exhausted:
                answer = await self._retry_with_namespace(body.data, answer, deadline)
            if answer.decision.missing_images and self._images is not None:
                left = deadline - waited - (monotonic() - start)
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
        """The answer to a review that is not there, or that nobody can have meant to be read."""
        if body.over_budget or (
            self._budget.exhausted and body.length > _GUARANTEED_DECISION_BYTES
        ):
            why = (
                f"{self._budget.used_bytes} bytes of other reviews and answers leave no room for it"
            )
            return allow_unread(body.data, Reason.OVERLOADED, why)
        if not body.complete:
            why = f"{body.length} bytes came in {_body_timeout(deadline):.2g} s, and not the end"
            return allow_unread(body.data, Reason.DEADLINE_EXCEEDED, why)
        if body.length > MAX_BODY_BYTES:
            why = f"{body.length} bytes are more than the {MAX_BODY_BYTES} it reads"
            return allow_unread(body.data, Reason.UNSUPPORTED_REVIEW, why)
        return None

    def _admit(self, review: bytes, waited: float, deadline: float) -> Answer:
        """The answer to a review, unless there are too many. Raises UnreadableReviewError."""
        if self._in_flight.is_overloaded(waited, deadline):
            why = (
                f"{self._in_flight.review_count} reviews are under way, and it waited "
                f"{waited:.2g} s: more come than can be answered in time"
            )
            return allow_unread(review, Reason.OVERLOADED, why)
        view = self._source.view
        return admit(review, view.policies, view, self._settings, cache=self._cache)

    async def _retry_with_namespace(self, body: bytes, answer: Answer, deadline: float) -> Answer:
        """Answer once more, if the namespace that was too new to be known can be had in time."""
        name = answer.unknown_namespace or ""
        seconds = min(NAMESPACE_LOOKUP_SECONDS, deadline * _NAMESPACE_LOOKUP_SHARE)
        found = await self._source.fetch_namespace(name, seconds)
        if not found:
            return answer
        view = self._source.view
        return admit(body, view.policies, view, self._settings, cache=self._cache)

    def _record(self, answer: Answer, review: bytes, came: float) -> None:
        """Count an answer and tell of it. Raises nothing."""
        try:
            self._metrics.reviews.count(answer.decision, monotonic() - came)
            self._log(answer, review)
        except Exception:
            # The answer is made, and nothing that is told about it may keep it from the pod.
            log.exception("a defect in podsettle; an answer was not counted or not logged")

    def _log(self, answer: Answer, review: bytes) -> None:
        """Tell the log of a pod that a policy covers, and of a defect."""
        request = answer.request
        if answer.error is not None:
            log.error(
                "a defect in podsettle; the pod was admitted unchanged (uid %s)",
                printable((request.uid if request else uid_of(review)) or "unknown"),
                exc_info=answer.error,
            )
        elif request is not None and answer.decision.policies and self._review_log.enabled:
            namespace, pod = request.namespace or "", request.pod.name
            self._review_log.record(request.uid, namespace, pod, answer.decision.log_summary)

    async def _refuse(self, send: Send, status: int, message: str, *headers: Header) -> None:
        self._metrics.count_refused(status)
        await refuse(send, status, message, *headers)


def _body_timeout(deadline: float) -> float:
    """Seconds in which a body has to come."""
    return min(deadline, BODY_TIMEOUT_SECONDS)
