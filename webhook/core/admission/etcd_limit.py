"""The limit on the size of an object in etcd."""

from __future__ import annotations

from webhook.core.admission.decision import Decision, pod_decision
from webhook.core.admission.review import object_bytes
from webhook.core.reasons import Reason

MAX_PATCHED_BYTES = 1280 * 1024
"""The maximum length of a pod and its patch together, as JSON. etcd refuses requests of more than
1.5 MiB (`--max-request-bytes`), so the API server would refuse a pod that only the patch makes too
long. etcd stores a pod in a shorter form than JSON, but the fields of a schedule and a status are
added to it."""


def within_etcd_limit(decision: Decision, review: bytes) -> Decision:
    """Return a decision, or one that leaves the pod unchanged if the patch makes it too long.

    `review` is the AdmissionReview with the pod. It has been decoded before.
    """
    patch_bytes = len(decision.patch) * 3 // 4  # It is in base64.
    # Few reviews are so long that the length of their pod matters.
    if not patch_bytes or len(review) + patch_bytes <= MAX_PATCHED_BYTES:
        return decision
    patched_bytes = object_bytes(review) + patch_bytes
    if patched_bytes <= MAX_PATCHED_BYTES:
        return decision
    return pod_decision(
        Reason.POD_TOO_LARGE,
        f"the pod and its patch have {patched_bytes} bytes; the limit is {MAX_PATCHED_BYTES}, "
        "because etcd could refuse the pod",
        covered=True,
    )
