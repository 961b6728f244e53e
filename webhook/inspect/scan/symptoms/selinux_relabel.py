"""Containers of CRI-O whose creation takes too long because volumes are relabelled."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from webhook.core.defects.defect import Sign
from webhook.inspect.findings import Certainty, Finding
from webhook.inspect.scan.symptoms.base import Case, defect_named, event_evidence, symptom_of

_DEFECT = defect_named("crio-selinux-relabel")
_WAITING_REASON = "CreateContainerError"
_TIMEOUT = "context deadline exceeded"
_STAGE = "Currently at stage"
_OTHER_STAGE = Sign(
    reason="Failed",
    contains=(_STAGE,),
    lacks=(f"{_STAGE} container volume configuration",),
    certainty="certain",
)
"""CRI-O relabels volumes in that stage only (`server/container_create.go`)."""


def find(case: Case) -> Iterator[Finding]:
    """Yield the most certain finding about a pod."""
    timeout = next(_timeouts(case), None)
    node = case.node if timeout is not None else None
    if timeout is not None and node is not None:
        yield timeout(node=node)


def _timeouts(case: Case) -> Iterator[partial[Finding]]:
    """Yield the timeouts by events, and by containers that wait after one. The surest comes first.

    Other causes delay the creation of containers of pods without volumes.
    """
    node = case.pod.spec.node_name
    for sign in _DEFECT.signs:
        event = case.event(sign)
        if event is not None:
            sentence = f"CRI-O did not create a container of the pod in time on node {node}"
            certainty = Certainty(sign.certainty)
            if certainty is Certainty.CERTAIN:
                sentence += ", because it was still at the pod's volumes"
            elif not _may_be_relabelled(case):
                continue
            evidence = [event_evidence(event)]
            yield partial(case.finding, certainty, sentence, evidence, event.time)
    for path, status in case.statuses:
        waiting = status.state.waiting if status.state is not None else None
        if waiting is None or waiting.reason != _WAITING_REASON:
            continue
        message = waiting.message
        if _TIMEOUT not in message or _OTHER_STAGE.is_in(message):
            continue
        if not _may_be_relabelled(case):
            return
        sentence = (
            f"the creation of container {status.name} timed out on node {node}, and the pod has a "
            "persistent volume"
        )
        evidence = [
            case.evidence(f"{path}.state.waiting.reason", waiting.reason),
            case.evidence(f"{path}.state.waiting.message", message),
        ]
        yield partial(case.finding, Certainty.POSSIBLE, sentence, evidence)


def _may_be_relabelled(case: Case) -> bool:
    return bool(case.claims) and case.event(_OTHER_STAGE) is None


SYMPTOM = symptom_of(_DEFECT, ("pods", "nodes", "events"), find, (_OTHER_STAGE,))
