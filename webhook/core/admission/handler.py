"""Answers AdmissionReviews, from bytes to bytes, and allows every pod.

After any error the pod is admitted unchanged, with a warning and a counted reason. A denial and a
patch that does not apply would both block the pod, even with `failurePolicy: Ignore` (kubernetes
`apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.core.admission.decider import Decider, pod_decision
from webhook.core.admission.decision import Decision
from webhook.core.admission.etcd_limit import within_etcd_limit
from webhook.core.admission.rendered_decision import RenderedDecision
from webhook.core.admission.response import encode_review
from webhook.core.admission.review import (
    REVIEW_API_VERSION,
    Request,
    Review,
    decode_review,
    uid_of,
)
from webhook.core.cluster.view import ClusterView
from webhook.core.images import NO_IMAGES, KnownImages
from webhook.core.pod import DECODE_ERRORS
from webhook.core.policy.coverage import PolicySet
from webhook.core.reasons import Reason

_REVIEW_GROUP = "admission.k8s.io/"


class UnreadableReviewError(Exception):
    """Raised for a body without a uid, because an answer to an AdmissionReview needs the uid."""


class Answer(msgspec.Struct, frozen=True):
    """The bytes to send, and the decision that they encode."""

    body: bytes
    rendered: RenderedDecision
    request: Request[Any] | None
    error: Exception | None
    """The exception behind an `InternalError`, for the log."""

    @property
    def decision(self) -> Decision:
        """The decision without what is rendered of it."""
        return self.rendered.decision

    @property
    def unknown_namespace(self) -> str | None:
        """The name of the pod's namespace, if no decision was possible because it is unknown."""
        if self.request is None or not self.decision.lacks_namespace:
            return None
        return self.request.namespace


def admit(
    body: bytes,
    decider: Decider,
    policies: PolicySet,
    view: ClusterView,
    images: KnownImages = NO_IMAGES,
) -> Answer:
    """Answer one AdmissionReview. `images` are the results of earlier image lookups.

    Raises only UnreadableReviewError.
    """
    try:
        review = decode_review(body)
    except DECODE_ERRORS as error:
        uid = uid_of(body)
        if uid is None:
            raise UnreadableReviewError(f"not an AdmissionReview: {error}") from None
        rendered = pod_decision(Reason.UNSUPPORTED_REVIEW, f"podsettle cannot read it: {error}")
        return _answer(REVIEW_API_VERSION, uid, rendered)
    request = review.request
    if review.kind != "AdmissionReview" or review.api_version != REVIEW_API_VERSION:
        rendered = pod_decision(
            Reason.UNSUPPORTED_REVIEW,
            f"{review.kind or 'no kind'} of {review.api_version or 'no apiVersion'}; "
            f"podsettle answers AdmissionReview of {REVIEW_API_VERSION}",
        )
        return _answer(_response_version(review), request.uid, rendered, request)
    rendered, failure = decider.decide_safely(request, policies, view, images)
    rendered = within_etcd_limit(rendered, body)
    return _answer(REVIEW_API_VERSION, request.uid, rendered, request, failure)


def allow_unread(head: bytes, reason: Reason, message: str) -> Answer:
    """Admit a pod unchanged without decoding its review.

    `head` may be a truncated body. Raises UnreadableReviewError if it has no uid.
    """
    uid = uid_of(head)
    if uid is None:
        raise UnreadableReviewError(message)
    rendered = pod_decision(reason, message)
    return _answer(REVIEW_API_VERSION, uid, rendered)


def _response_version(review: Review[Any]) -> str:
    """Return the review's own version if it belongs to the API group, else the supported one."""
    version = review.api_version
    return version if version.startswith(_REVIEW_GROUP) else REVIEW_API_VERSION


def _answer(
    api_version: str,
    uid: str,
    rendered: RenderedDecision,
    request: Request[Any] | None = None,
    error: Exception | None = None,
) -> Answer:
    body = encode_review(api_version, uid, rendered.patch, rendered.texts.texts_json)
    return Answer(body, rendered, request, error)
