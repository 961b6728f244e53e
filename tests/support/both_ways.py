"""Answers to AdmissionReviews with a long-lived cache and without one. They must be equal."""

from __future__ import annotations

from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decider import Decider, OperatorSettings
from webhook.core.admission.handler import Answer, UnreadableReviewError, admit, admit_again
from webhook.core.images import NO_IMAGES, KnownImages
from webhook.core.policy.snapshot import Snapshot

SHARED_CACHE = DecisionCache()
"""The cache of all tests in this process, so that a decision may come from another test."""


def admit_both_ways(
    body: bytes,
    view: Snapshot,
    settings: OperatorSettings,
    images: KnownImages = NO_IMAGES,
) -> Answer:
    """Return the answer without a cache, and check that the answers with the cache are equal.

    Raises UnreadableReviewError if both ways raise it.
    """
    cached = Decider(settings, SHARED_CACHE)
    try:
        wanted = _admit(body, Decider(settings), view, images)
    except UnreadableReviewError:
        try:
            found = _admit(body, cached, view, images)
        except UnreadableReviewError:
            raise
        raise AssertionError(f"only the cache answers {body!r}: {found.body!r}") from None
    for _ in range(3):  # The second answer is stored, and the third one comes from the cache.
        found = _admit(body, cached, view, images)
        assert found.body == wanted.body, f"with the cache, {body!r} has another answer"
        assert repr(found.decision) == repr(wanted.decision), f"with the cache, {body!r} differs"
    return wanted


def _admit(body: bytes, decider: Decider, view: Snapshot, images: KnownImages) -> Answer:
    answer = admit(body, decider, view)
    return admit_again(answer, decider, view, images) if images else answer
