"""The limit on the size of an object in etcd."""

from __future__ import annotations

from webhook.core.admission.decider import pod_decision
from webhook.core.admission.rendered_decision import RenderedDecision
from webhook.core.reasons import Reason

MAX_PATCHED_BYTES = 1280 * 1024
"""The maximum length of a pod and its patch together, as JSON. etcd refuses requests of more than
1.5 MiB (`--max-request-bytes`), so the API server would refuse a pod that only the patch makes too
long. etcd stores a pod in a shorter form than JSON, and status and events of scheduling add to it.
Real pods have at most some hundred KB."""


def within_etcd_limit(rendered: RenderedDecision, pod_bytes: int) -> RenderedDecision:
    """Return a decision, or one that leaves the pod unchanged if the patch makes it too long.

    `pod_bytes` is the length of the pod's JSON, or more.
    """
    patch_bytes = len(rendered.patch) * 3 // 4  # It is in base64.
    if not patch_bytes or pod_bytes + patch_bytes <= MAX_PATCHED_BYTES:
        return rendered
    return pod_decision(
        Reason.POD_TOO_LARGE,
        f"the pod and its patch have {pod_bytes + patch_bytes} bytes; the limit is "
        f"{MAX_PATCHED_BYTES}, because etcd could refuse the pod",
    )
