"""The first serving certificates of the kubelets of nodes, from their certificate requests.

Only the first certificate of a node counts. During a renewal the kubelet serves with its old
certificate. Kubernetes deletes approved requests after an hour. So in the first hour of a node all
its approvals are there, and later an earlier one may be gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from webhook.inspect.objects import SigningRequest

SIGNER = "kubernetes.io/kubelet-serving"
_USER_PREFIX = "system:node:"
_BEFORE_NODE, _AFTER_NODE = timedelta(minutes=1), timedelta(minutes=10)
"""The time around the creation of a node in which its kubelet makes its first request."""
_KEPT = timedelta(hours=1)
"""How long Kubernetes keeps an approved or denied request (kubernetes
`pkg/controller/certificates/cleaner/cleaner.go`). It keeps a pending one for a day."""


class FirstCertificate(NamedTuple):
    """The request for the first serving certificate of a node."""

    request: str
    """The name of the CertificateSigningRequest that was approved first, or else of the first."""
    approved_at: datetime | None
    """None while no request of the node is approved."""
    is_certain: bool = True
    """False if an earlier approval may have been deleted."""


def first_certificates(
    requests: Iterable[SigningRequest], node_created: Mapping[str, datetime], now: datetime
) -> dict[str, FirstCertificate]:
    """Return by node when its first serving certificate was approved.

    A node older than an hour is left out if its first request is not there. The API server deletes
    requests, so the others may be renewals. A kubelet whose first request is not approved in time
    makes another one. A node is left out too if none of its requests is approved and all are older
    than an hour.
    """
    by_node: dict[str, list[tuple[datetime, SigningRequest]]] = {}
    for request in requests:
        if request.spec.signer_name != SIGNER:
            continue
        node = request.spec.username.removeprefix(_USER_PREFIX)
        created, node_time = request.metadata.creation_timestamp, node_created.get(node)
        if node == request.spec.username or created is None or node_time is None:
            continue
        if created >= node_time - _BEFORE_NODE:  # Earlier ones are of a node with the same name.
            by_node.setdefault(node, []).append((created, request))
    result: dict[str, FirstCertificate] = {}
    for node, found in by_node.items():
        created, first = min(found, key=lambda pair: pair[0])
        is_certain = max(now, created) - node_created[node] < _KEPT
        if not is_certain and created > node_created[node] + _AFTER_NODE:
            continue
        approvals = [
            (approval.last_transition_time or approval.last_update_time, request.metadata.name)
            for _, request in found
            if (approval := request.status.condition("Approved")) is not None
        ]
        times = [(time, name) for time, name in approvals if time is not None]
        if times:
            approved_at, name = min(times)
            result[node] = FirstCertificate(name, approved_at, is_certain)
        elif not approvals and now - max(created for created, _ in found) < _KEPT:
            result[node] = FirstCertificate(first.metadata.name, None, is_certain)
    return result
