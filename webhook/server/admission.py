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
from webhook.core.admission.cache import Memory
from webhook.core.admission.decide import Settings
from webhook.core.admission.handler import Answer, UnreadableReviewError, admit, admit_unread
from webhook.core.admission.review import uid_of
from webhook.core.reasons import Reason
from webhook.images.lookup import ImageLookup
from webhook.server.drain import Drain
from webhook.server.load_shedding import Load, Room
from webhook.server.metrics import Metrics
from webhook.server.protocol import ARRIVAL, Arrival, is_last
from webhook.server.request_body import MAX_BODY, MOST_BYTES, Body
from webhook.server.request_head import deadline_in, is_json
from webhook.server.responses import CLOSE, JSON, Header, refuse, respond
from webhook.server.review_log import Journal, shown

log = logging.getLogger(__name__)

SECONDS_FOR_BODY = 7.0
"""At the most, whatever the query says: who sends a review slowly keeps others from having room."""
_SHARE_FOR_A_NAMESPACE = 0.25
_SECONDS_FOR_A_NAMESPACE = 0.5
"""How much of the deadline, and how much at the most, goes into asking for a namespace."""

_SHARE_FOR_IMAGES = 0.6
"""How much of the deadline may go into looking images up; what comes too late is there for the
next pod."""

_ALWAYS_DECIDED_ON = 256 * 1024
"""Bytes of a review. The answer to a longer one, and what it is made of, may take as much as it."""

_ALLOW = (b"allow", b"POST")


class Mutate:
    """What is behind `/mutate`: an ASGI application, and its short way."""

    def __init__(
        self,
        source: Source,
        settings: Settings,
        metrics: Metrics,
        journal: Journal,
        drain: Drain,
        load: Load,
        room: Room,
        images: ImageLookup | None = None,
    ) -> None:
        self._images = images
        self._source = source
        self._settings = settings
        self._metrics = metrics
        self._journal = journal
        self._drain = drain
        self._load = load
        self._room = room
        self._memory = Memory()

    def at_once(self, review: bytes, deadline: float, came: float) -> bytes | None:
        """The answer to a review that came whole; None where it takes the application.

        The application is for what has to wait, to be refused, or to be explained. Nothing was
        counted or logged here then: it does all of it again.
        """
        try:
            answer = self._look_at(review, monotonic() - came, deadline)
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
        body = Body(self._room)
        try:
            answer = await self._review(scope, receive, send, body)
        finally:
            body.release()
        if answer is not None:
            await self._send(send, answer)

    async def _review(self, scope: Scope, receive: Receive, send: Send, body: Body) -> bytes | None:
        """The answer to a review; None where there is none, or another was sent."""
        deadline = deadline_in(scope["query_string"])
        arrival: Arrival | None = scope.get("state", {}).get(ARRIVAL)
        waited = monotonic() - arrival.at if arrival else 0.0
        if arrival and arrival.complete:
            came = arrival.at
            # A timer would cost more than the reading of what is there.
            await body.read(receive)
        else:
            await self._read_slowly(body, receive, _for_body(deadline) - waited)
            came = monotonic()
        if body.abandoned:
            return None
        if body.length > MOST_BYTES:
            await self._refuse(send, 413, f"the body is longer than {MOST_BYTES} bytes", CLOSE)
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
        self._record(answer, body.kept, came)
        return answer.body

    async def _send(self, send: Send, answer: bytes) -> None:
        """Send an answer. Of what it was made of nothing is left: the client may read slowly."""
        last = (CLOSE,) if is_last() else ()
        with self._room.share() as take:
            take(len(answer))
            await respond(send, 200, answer, JSON, *last)

    async def _read_slowly(self, body: Body, receive: Receive, seconds: float) -> None:
        """Read a body that has not come to its end, and is no load until it has."""
        aside = self._load.aside
        aside.add(body)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await body.read(receive)
        finally:
            aside.discard(body)

    async def _answer(self, body: Body, start: float, waited: float, deadline: float) -> Answer:
        """The answer, whatever happens. Raises UnreadableReviewError, and nothing else."""
        try:
            answer = self._unread(body, deadline) or self._look_at(body.kept, waited, deadline)
            if answer.unknown_namespace is not None and not self._room.full:
                answer = await self._ask_again(body.kept, answer, deadline)
            if answer.decision.missing_images and self._images is not None:
                left = deadline - waited - (monotonic() - start)
                seconds = max(min(deadline * _SHARE_FOR_IMAGES, left), 0.0)
                known = await self._images.find(answer.decision.missing_images, seconds)
                answer = admit(body.kept, self._source.view, self._settings, known, self._memory)
        except UnreadableReviewError:
            raise
        except Exception as error:
            why = f"the pod was admitted unchanged: {error!r}"
            return replace(admit_unread(body.kept, Reason.INTERNAL_ERROR, why), defect=error)
        return answer

    def _unread(self, body: Body, deadline: float) -> Answer | None:
        """The answer to a review that is not there, or that nobody can have meant to be read."""
        if body.crowded_out or (self._room.full and body.length > _ALWAYS_DECIDED_ON):
            why = f"{self._room.held} bytes of other reviews and of answers leave no room for it"
            return admit_unread(body.kept, Reason.OVERLOADED, why)
        if not body.complete:
            why = f"{body.length} bytes came in {_for_body(deadline):.2g} s, and not the end"
            return admit_unread(body.kept, Reason.DEADLINE_EXCEEDED, why)
        if body.length > MAX_BODY:
            why = f"{body.length} bytes are more than the {MAX_BODY} it reads"
            return admit_unread(body.kept, Reason.UNSUPPORTED_REVIEW, why)
        return None

    def _look_at(self, review: bytes, waited: float, deadline: float) -> Answer:
        """The answer to a review, unless there are too many. Raises UnreadableReviewError."""
        if self._load.is_too_much(waited, deadline):
            why = (
                f"{self._load.reviews} reviews are under way, and it waited {waited:.2g} s: "
                "more come than can be answered in time"
            )
            return admit_unread(review, Reason.OVERLOADED, why)
        return admit(review, self._source.view, self._settings, memory=self._memory)

    async def _ask_again(self, body: bytes, answer: Answer, deadline: float) -> Answer:
        """Answer once more, if the namespace that was too new to be known can be had in time."""
        name = answer.unknown_namespace or ""
        seconds = min(_SECONDS_FOR_A_NAMESPACE, deadline * _SHARE_FOR_A_NAMESPACE)
        found = await self._source.fetch_namespace(name, seconds)
        if not found:
            return answer
        return admit(body, self._source.view, self._settings, memory=self._memory)

    def _record(self, answer: Answer, review: bytes, came: float) -> None:
        """Count an answer and tell of it. Raises nothing."""
        try:
            self._metrics.reviews.count(answer.decision, monotonic() - came)
            self._tell(answer, review)
        except Exception:
            # The answer is made, and nothing that is told about it may keep it from the pod.
            log.exception("a defect in podsettle; an answer was not counted or not logged")

    def _tell(self, answer: Answer, review: bytes) -> None:
        """Tell the log of a pod that a policy covers, and of a defect."""
        request = answer.request
        if answer.defect is not None:
            log.error(
                "a defect in podsettle; the pod was admitted unchanged (uid %s)",
                shown((request.uid if request else uid_of(review)) or "unknown"),
                exc_info=answer.defect,
            )
        elif request is not None and answer.decision.policies and self._journal.wanted:
            namespace, pod = request.namespace or "", request.pod.name
            self._journal.tell(request.uid, namespace, pod, answer.decision.log_summary)

    async def _refuse(self, send: Send, status: int, message: str, *headers: Header) -> None:
        self._metrics.count_refused(status)
        await refuse(send, status, message, *headers)


def _for_body(deadline: float) -> float:
    """Seconds in which a body has to come."""
    return min(deadline, SECONDS_FOR_BODY)
