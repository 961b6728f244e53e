"""Pods that started before their node's kubelet had its first serving certificate.

Only the first certificate of a node counts. During a renewal the kubelet serves with its old
certificate. Kubernetes deletes approved requests after an hour. So in the first hour of a node all
its approvals are there, and later an earlier one may be gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from webhook.core.constants import KUBELET_GATE
from webhook.core.decision_input import facts_of, namespace_facts_of
from webhook.core.pod import DECODE_ERRORS
from webhook.core.remedies.gates import is_needed_by_node
from webhook.inspect.findings import Certainty, Evidence, Finding, format_time
from webhook.inspect.objects import SigningRequest
from webhook.inspect.scan.symptoms.base import Case, FirstCertificate, symptom_of

SIGNER = "kubernetes.io/kubelet-serving"
_USER_PREFIX = "system:node:"
_BEFORE_NODE, _AFTER_NODE = timedelta(minutes=1), timedelta(minutes=10)
"""The time around the creation of a node in which its kubelet makes its first request."""
_KEPT = timedelta(hours=1)
"""How long Kubernetes keeps an approved or denied request (kubernetes
`pkg/controller/certificates/cleaner/cleaner.go`). It keeps a pending one for a day."""
_DOUBT = timedelta(seconds=1)
"""Times are whole seconds, so a difference of one second may be none."""


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
        is_first = max(now, created) - node_created[node] < _KEPT
        if not is_first and created > node_created[node] + _AFTER_NODE:
            continue
        approvals = [
            (approval.last_transition_time or approval.last_update_time, request.metadata.name)
            for _, request in found
            # The signer issues no certificate for a request that failed.
            if (approval := request.status.condition("Approved")) is not None
            and request.status.condition("Failed") is None
        ]
        times = [(time, name) for time, name in approvals if time is not None]
        if times:
            approved_at, name = min(times)
            result[node] = FirstCertificate(name, approved_at, node_created[node], is_first)
        elif not approvals and now - max(created for created, _ in found) < _KEPT:
            result[node] = FirstCertificate(first.metadata.name, None, node_created[node], is_first)
    return result


def find(case: Case) -> Iterator[Finding]:
    """Yield a finding if a container started before the request of its node was approved."""
    pod = case.pod
    certificate = case.facts.first_certificates.get(pod.spec.node_name or "")
    if certificate is None:
        return
    started, approved = case.first_start, certificate.approved_at
    earliest = certificate.node_created - _BEFORE_NODE  # Before, another node had its name.
    if started is None or started < earliest or (approved is not None and approved <= started):
        return
    # The gate itself starts before the certificate exists.
    has_gate = any(init.name == KUBELET_GATE for init in pod.spec.init_containers or ())
    # A node may need the pod before the certificate, so that it gets no gate. Nor does a pod on
    # Fargate, because it cannot connect to its kubelet.
    try:
        facts = facts_of(pod)
    except DECODE_ERRORS:
        return  # Of a dump. No API server has a pod with such mounts.
    namespace = namespace_facts_of(pod.metadata.namespace, {}, fixed_selinux_level=False)
    if has_gate or facts.is_on_fargate or is_needed_by_node(facts, namespace):
        return
    sentence = f"the pod started on node {pod.spec.node_name}"
    if approved is None:
        sentence += ", whose kubelet still has no serving certificate, so no log can be read"
    else:
        sentence += (
            f" {round((approved - started).total_seconds())} s before the approval of the "
            "kubelet's serving certificate, so its log could not be read then"
        )
    in_doubt = approved is not None and approved - started <= _DOUBT
    if not certificate.is_certain:
        sentence += ", unless an earlier request was approved and has been deleted since"
        in_doubt = True
    certainty = Certainty.POSSIBLE if in_doubt else Certainty.CERTAIN
    evidence = (
        case.evidence("startedAt of its first container", format_time(started), started),
        Evidence(
            f"certificatesigningrequest {certificate.request}",
            "status.conditions[Approved]",
            format_time(approved) if approved is not None else "absent",
            approved,
        ),
    )
    yield case.finding(certainty, sentence, evidence, started)


SYMPTOM = symptom_of(
    "kubelet-serving-certificate", ("pods", "nodes", "certificatesigningrequests"), find
)
