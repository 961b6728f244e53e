"""Answers AdmissionReviews, from bytes to bytes, and allows every pod.

After any error the pod is admitted unchanged, with a warning and a counted reason. A denial and a
patch that does not apply would both block the pod, even with `failurePolicy: Ignore` (kubernetes
`apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.core.admission.decider import Decider
from webhook.core.admission.decision import Decision, pod_decision
from webhook.core.admission.etcd_limit import within_etcd_limit
from webhook.core.admission.response import encode_review
from webhook.core.admission.review import (
    REVIEW_API_VERSION,
    Request,
    decode_review,
    uid_of,
)
from webhook.core.images import NO_IMAGES, KnownImages
from webhook.core.pod import DECODE_ERRORS
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import Outcome, Reason

_REVIEW_GROUP = "admission.k8s.io/"


class UnreadableReviewError(Exception):
    """Raised for a body without a uid, because an answer to an AdmissionReview needs the uid."""


class Answer(msgspec.Struct, frozen=True):
    """The bytes to send, and the decision that they encode."""

    body: bytes
    decision: Decision
    review: bytes
    """The received bytes of the review."""
    request: Request[Any] | None = None
    """The decoded request. None if the review cannot be decoded."""

    @property
    def missing(self) -> bool:
        """Whether a look-up of the namespace or of images may lead to a better answer."""
        return self.request is not None and self.decision.missing

    @property
    def error(self) -> Exception | None:
        """The exception behind an `InternalError`, for the log."""
        return self.decision.error


def admit(body: bytes, decider: Decider, snapshot: Snapshot) -> Answer:
    """Answer one AdmissionReview. Raises only UnreadableReviewError."""
    try:
        review = decode_review(body)
    except DECODE_ERRORS as error:
        message = f"podsettle cannot read it: {error}"
        uid = uid_of(body)
        if uid is None:
            raise UnreadableReviewError(f"not an AdmissionReview: {error}") from None
        return _answer(
            REVIEW_API_VERSION, uid, pod_decision(Reason.UNSUPPORTED_REVIEW, message), body
        )
    request = review.request
    if review.kind != "AdmissionReview" or review.api_version != REVIEW_API_VERSION:
        decision = pod_decision(
            Reason.UNSUPPORTED_REVIEW,
            f"{review.kind or 'no kind'} of {review.api_version or 'no apiVersion'}; "
            f"podsettle answers AdmissionReview of {REVIEW_API_VERSION}",
        )
        # A version of the API group is answered as it is, any other as the supported one.
        is_of_group = review.api_version.startswith(_REVIEW_GROUP)
        version = review.api_version if is_of_group else REVIEW_API_VERSION
        return _answer(version, request.uid, decision, body, request)
    return _admit(request, body, decider, snapshot, NO_IMAGES)


def admit_again(
    answer: Answer, decider: Decider, snapshot: Snapshot, images: KnownImages = NO_IMAGES
) -> Answer:
    """Return a better answer after a look-up of what an answer is `missing`. Raises nothing.

    The review is not decoded again. `images` are the results of image look-ups.
    """
    if not answer.missing or answer.request is None:
        return answer
    return _admit(answer.request, answer.review, decider, snapshot, images)


def _admit(
    request: Request[Any], body: bytes, decider: Decider, snapshot: Snapshot, images: KnownImages
) -> Answer:
    decision = within_etcd_limit(decider.decide(request, snapshot, images), body)
    return _answer(REVIEW_API_VERSION, request.uid, decision, body, request)


def allow_unread(
    body: bytes, reason: Reason, message: str, error: Exception | None = None
) -> Answer:
    """Admit a pod unchanged without decoding its review.

    `body` may be only its beginning. Raises UnreadableReviewError if it has no uid.
    """
    uid = uid_of(body)
    if uid is None:
        raise UnreadableReviewError(message)
    decision = Decision((Outcome(reason, message=message),), error=error)
    return _answer(REVIEW_API_VERSION, uid, decision, body)


def _answer(
    api_version: str,
    uid: str,
    decision: Decision,
    review: bytes,
    request: Request[Any] | None = None,
) -> Answer:
    body = encode_review(api_version, uid, decision.patch, decision.texts.texts_json)
    return Answer(body, decision, review, request)
