"""Pods with fsGroup whose volumes take long to mount, because every file gets another owner."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from webhook.inspect.findings import Certainty, Evidence, Finding
from webhook.inspect.objects import LivePod
from webhook.inspect.scan.symptoms.base import (
    ScanFacts,
    Symptom,
    defect_named,
    event_evidence,
    first_event,
    has_persistent_volume,
    make_finding,
)

ID = "fs-group"
_DEFECT = defect_named("fsgroup-ownership-walk")
_MIN_MOUNT_TIME = timedelta(seconds=120)
"""To attach and mount a volume takes seconds. The kubelet reports a timeout after two minutes."""


def judge(pod: LivePod, facts: ScanFacts) -> Iterator[Finding]:
    """Yield the most certain finding about a pod."""
    context = pod.spec.security_context
    if context is None or context.fs_group is None or not has_persistent_volume(pod):
        return
    policy = context.fs_group_change_policy
    if policy == "OnRootMismatch":
        return
    settings = Evidence(
        pod.title,
        "spec.securityContext",
        f"fsGroup {context.fs_group}, fsGroupChangePolicy {policy or 'not set, which is Always'}",
    )
    for sign in _DEFECT.signs:
        event = first_event(pod, facts, sign)
        if event is not None:
            certainty = Certainty(sign.certainty)
            evidence = (event_evidence(event), settings)
            what = (
                "the change of the owners of files was taking longer than expected"
                if certainty is Certainty.CERTAIN
                else "the pod's volumes were not mounted in time"
            )
            yield make_finding(ID, pod, certainty, what, evidence, event.time, defect=_DEFECT)
            return
    scheduled = pod.status.condition("PodScheduled")
    ready = pod.status.condition("PodReadyToStartContainers")
    if scheduled is None or ready is None or {scheduled.status, ready.status} != {"True"}:
        return
    begin, end = scheduled.last_transition_time, ready.last_transition_time
    if begin is None or end is None or end - begin < _MIN_MOUNT_TIME:
        return
    seconds = round((end - begin).total_seconds())
    evidence_of_time = Evidence(
        pod.title,
        "status.conditions[PodReadyToStartContainers].lastTransitionTime",
        f"{seconds} s after PodScheduled",
        end,
    )
    sentence = (
        f"the pod's sandbox was ready {seconds} s after the pod was scheduled; to attach volumes "
        "is part of this time"
    )
    yield make_finding(
        ID, pod, Certainty.POSSIBLE, sentence, (evidence_of_time, settings), end, defect=_DEFECT
    )


SYMPTOM = Symptom(
    id=ID,
    title=_DEFECT.title,
    defect=_DEFECT,
    areas=("pods", "events"),
    judge=judge,
    signs=_DEFECT.signs,
)
