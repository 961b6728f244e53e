"""AdmissionReview bytes in, AdmissionReview bytes out: always an answer, always allowed.

Whatever goes wrong in between costs the pod nothing but its remedies: it is admitted unchanged,
with a warning and a counted reason. `failurePolicy: Ignore` would not cover a denial or a patch
that does not apply (kubernetes `apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.core.admission.cache import Memory
from webhook.core.admission.decide import Settings, decide
from webhook.core.admission.decision import Decision
from webhook.core.admission.response import encode_review
from webhook.core.admission.review import REVIEW_API_VERSION, Request, Review, decode_review, uid_of
from webhook.core.cluster.view import ClusterView
from webhook.core.images import NO_IMAGES, KnownImages
from webhook.core.pod import DECODE_ERRORS
from webhook.core.policy.coverage import PolicySet
from webhook.core.reasons import Outcome, Reason

_GROUP = "admission.k8s.io/"

_encode = msgspec.json.Encoder().encode

_LONGEST_REMEMBERED = 64 * 1024
"""Bytes of a review, a quarter of what annotations may take: a likeness does not know how long
those of others are, and in so short a review there is room for podsettle's."""


class UnreadableReviewError(Exception):
    """A body without a uid to answer to: not an AdmissionReview at all."""


class Answer(msgspec.Struct, frozen=True):
    """What goes back, and what it rests on."""

    body: bytes
    decision: Decision
    request: Request[Any] | None
    defect: Exception | None
    """The defect behind an `InternalError`, for the log."""

    @property
    def unknown_namespace(self) -> str | None:
        """The namespace that kept the pod from being decided on, where it is not known."""
        if self.request is None or not self.decision.lacks_namespace:
            return None
        return self.request.namespace


def admit(
    body: bytes,
    policies: PolicySet,
    view: ClusterView,
    settings: Settings,
    images: KnownImages = NO_IMAGES,
    memory: Memory | None = None,
) -> Answer:
    """Answer one AdmissionReview, perhaps by what is remembered of others.

    Raises UnreadableReviewError, and nothing else.
    """
    try:
        review = decode_review(body)
    except DECODE_ERRORS as error:
        uid = uid_of(body)
        if uid is None:
            raise UnreadableReviewError(f"not an AdmissionReview: {error}") from None
        decision = _only(Reason.UNSUPPORTED_REVIEW, f"podsettle cannot read it: {error}")
        return _answer(REVIEW_API_VERSION, uid, decision)
    request = review.request
    if review.kind != "AdmissionReview" or review.api_version != REVIEW_API_VERSION:
        decision = _only(
            Reason.UNSUPPORTED_REVIEW,
            f"{review.kind or 'no kind'} of {review.api_version or 'no apiVersion'}; "
            f"podsettle answers AdmissionReview of {REVIEW_API_VERSION}",
        )
        return _answer(_version(review), request.uid, decision, request)
    reusable = len(body) <= _LONGEST_REMEMBERED
    decision, defect = decide_safely(
        request, policies, view, settings, images, memory, reusable=reusable
    )
    return _answer(REVIEW_API_VERSION, request.uid, decision, request, defect)


def admit_unread(head: bytes, reason: Reason, why: str) -> Answer:
    """Admit unchanged what there is no time or room to read.

    Of the review, as much as there is. Raises UnreadableReviewError where that has no uid.
    """
    uid = uid_of(head)
    if uid is None:
        raise UnreadableReviewError(why)
    decision = _only(reason, why)
    return _answer(REVIEW_API_VERSION, uid, decision)


def decide_safely(
    request: Request[Any],
    policies: PolicySet,
    view: ClusterView,
    settings: Settings,
    images: KnownImages = NO_IMAGES,
    memory: Memory | None = None,
    *,
    reusable: bool = True,
) -> tuple[Decision, Exception | None]:
    """A decision whatever happens, and the defect where one got in the way."""
    try:
        return decide(request, policies, view, settings, images, memory, reusable=reusable), None
    except DECODE_ERRORS as error:
        return _only(Reason.MALFORMED_POD, f"the pod was admitted unchanged: {error}"), None
    except Exception as error:
        return _only(Reason.INTERNAL_ERROR, f"the pod was admitted unchanged: {error!r}"), error


def _only(reason: Reason, message: str) -> Decision:
    return Decision((Outcome(reason, message=message),))


def _version(review: Review[Any]) -> str:
    """A version that the asker understands: its own, where it is one of the group's."""
    return review.api_version if review.api_version.startswith(_GROUP) else REVIEW_API_VERSION


def _answer(
    api_version: str,
    uid: str,
    decision: Decision,
    request: Request[Any] | None = None,
    defect: Exception | None = None,
) -> Answer:
    body = encode_review(api_version, uid, decision.response_json)
    return Answer(body, decision, request, defect)
