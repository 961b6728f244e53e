"""Pods that started before their node's kubelet had its first serving certificate."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from webhook.core.constants import KUBELET_GATE
from webhook.core.decision_input import facts_of, namespace_facts_of
from webhook.core.remedies.gates import is_needed_by_node
from webhook.inspect.findings import Certainty, Evidence, Finding, format_time
from webhook.inspect.scan.symptoms.base import Case, defect_named, symptom_of

_DEFECT = defect_named("kubelet-serving-certificate")
_DOUBT = timedelta(seconds=1)
"""Times are whole seconds, so a difference of one second may be none."""


def find(case: Case) -> Iterator[Finding]:
    """Yield a finding if a container started before the request of its node was approved."""
    pod = case.pod
    certificate = case.facts.first_certificates.get(pod.spec.node_name or "")
    if certificate is None:
        return
    started = _first_start(case)
    approved = certificate.approved_at
    if started is None or (approved is not None and approved <= started):
        return
    # The gate itself starts before the certificate exists.
    has_gate = any(init.name == KUBELET_GATE for init in pod.spec.init_containers or ())
    # A node may need the pod before the certificate, so that it gets no gate.
    namespace = namespace_facts_of(pod.metadata.namespace, fixed_selinux_level=False)
    if has_gate or is_needed_by_node(facts_of(pod), namespace):
        return
    sentence = f"the pod started on node {pod.spec.node_name}"
    if approved is None:
        sentence += (
            ", whose kubelet still has no serving certificate, so the pod's log cannot be read"
        )
    else:
        sentence += (
            f" {round((approved - started).total_seconds())} s before the approval of the "
            "kubelet's serving certificate, so its log could not be read then"
        )
    if not certificate.is_certain:
        sentence += ", unless an earlier request was approved and has been deleted since"
    in_doubt = not certificate.is_certain
    in_doubt |= approved is not None and approved - started <= _DOUBT
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


def _first_start(case: Case) -> datetime | None:
    """Return the earliest start of a container that the status still has."""
    starts = [
        started
        for _, each in case.statuses
        for state in (each.state, each.last_state)
        if state is not None
        and (started := state.started_at) is not None
        and case.is_plausible(started)
    ]
    return min(starts, default=None)


SYMPTOM = symptom_of(_DEFECT, ("pods", "nodes", "certificatesigningrequests"), find)
