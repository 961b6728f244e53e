"""Containers of CRI-O whose creation takes too long because volumes are relabelled."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.core.defects.defect import Sign
from webhook.inspect.findings import Certainty, Evidence, Finding
from webhook.inspect.objects import LivePod
from webhook.inspect.scan.symptoms.base import (
    NodeEvidence,
    ScanFacts,
    Symptom,
    defect_named,
    event_evidence,
    first_event,
    make_finding,
    names_other_cause,
    node_evidence,
    persistent_volumes,
)

ID = "selinux-relabel"
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


def judge(pod: LivePod, facts: ScanFacts) -> Iterator[Finding]:
    """Yield the most certain finding about a pod."""
    node = node_evidence(pod, facts, _DEFECT)
    if node is None:
        return
    has_volume = bool(persistent_volumes(pod))
    is_elsewhere = names_other_cause(pod, facts, (_OTHER_STAGE,))
    for sign in _DEFECT.signs:
        event = first_event(pod, facts, sign)
        certainty = Certainty(sign.certainty)
        # Other causes delay the creation of containers of pods without volumes.
        is_likely = has_volume and not is_elsewhere
        if event is None or not (is_likely or certainty is Certainty.CERTAIN):
            continue
        sentence = (
            f"CRI-O did not create a container of the pod in time on node {pod.spec.node_name}"
        )
        if certainty is Certainty.CERTAIN:
            sentence += ", because it was still at the pod's volumes"
        evidence = (event_evidence(event),)
        yield make_finding(
            ID, pod, certainty, sentence, evidence, event.time, defect=_DEFECT, node=node
        )
        return
    if has_volume and not is_elsewhere:
        yield from _from_state(pod, node)


def _from_state(pod: LivePod, node: NodeEvidence) -> Iterator[Finding]:
    """Yield a finding for the first container that waits after its creation has timed out."""
    lists = (
        ("initContainerStatuses", pod.status.init_container_statuses),
        ("containerStatuses", pod.status.container_statuses),
    )
    for field, statuses in lists:
        for index, status in enumerate(statuses or ()):
            waiting = status.state.waiting if status.state is not None else None
            if waiting is None or waiting.reason != _WAITING_REASON:
                continue
            if _TIMEOUT in waiting.message and not _OTHER_STAGE.is_in(waiting.message):
                path = f"status.{field}[{index}].state.waiting"
                evidence = (
                    Evidence(pod.title, f"{path}.reason", waiting.reason),
                    Evidence(pod.title, f"{path}.message", waiting.message),
                )
                sentence = (
                    f"the creation of container {status.name} timed out on node "
                    f"{pod.spec.node_name}, and the pod has a persistent volume"
                )
                yield make_finding(
                    ID,
                    pod,
                    Certainty.POSSIBLE,
                    sentence,
                    evidence,
                    None,
                    defect=_DEFECT,
                    node=node,
                )
                return


SYMPTOM = Symptom(
    id=ID,
    title=_DEFECT.title,
    defect=_DEFECT,
    areas=("pods", "nodes", "events"),
    judge=judge,
    signs=_DEFECT.signs,
    against=(_OTHER_STAGE,),
)
