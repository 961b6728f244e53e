"""Pods with fsGroup whose volumes take long to mount, because every file gets another owner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

from webhook.core.defects.defect import Sign
from webhook.inspect.findings import Certainty, Evidence, Finding
from webhook.inspect.objects import LivePod
from webhook.inspect.scan.symptoms.base import (
    ScanFacts,
    Symptom,
    defect_named,
    event_evidence,
    first_event,
    make_finding,
    names_other_cause,
    persistent_volumes,
)

ID = "fs-group"
_DEFECT = defect_named("fsgroup-ownership-walk")
_MIN_MOUNT_TIME = timedelta(seconds=120)
"""To attach and mount a volume takes seconds. The kubelet reports a timeout after two minutes."""
_UNMOUNTED = "unmounted volumes="
_VOLUMES = re.compile(r"(unmounted|unattached|failed to process) volumes=\[([^\]]*)\]")
_OTHER_CAUSES = tuple(
    Sign(reason=reason, contains=contains, lacks=lacks, certainty="certain")
    for reason, contains, lacks in (
        ("FailedAttachVolume", (), ()),
        ("FailedCreatePodSandBox", (), ()),
        ("FailedPrepareDynamicResources", (), ()),
        ("NetworkNotReady", (), ()),
        # The kubelet's cache is filled soon, and applyFSGroup is the change of owners itself.
        ("FailedMount", (), (_UNMOUNTED, "failed to sync", "applyFSGroup")),
        ("FailedMount", (_UNMOUNTED,), ("timed out waiting", "context deadline exceeded")),
    )
)
"""What else delays a pod before its sandbox is ready (kubernetes `pkg/kubelet/events/event.go`)."""


def judge(pod: LivePod, facts: ScanFacts) -> Iterator[Finding]:
    """Yield the most certain finding about a pod."""
    context = pod.spec.security_context
    if context is None or context.fs_group is None or not persistent_volumes(pod):
        return
    policy = context.fs_group_change_policy
    if policy == "OnRootMismatch":
        return
    settings = Evidence(
        pod.title,
        "spec.securityContext",
        f"fsGroup {context.fs_group}, fsGroupChangePolicy {policy or 'not set, which is Always'}",
    )
    has_other_cause = names_other_cause(pod, facts, _OTHER_CAUSES)
    for sign in _DEFECT.signs:
        event = first_event(pod, facts, sign)
        if event is not None:
            certainty = Certainty(sign.certainty)
            if certainty is not Certainty.CERTAIN and (
                has_other_cause or not _waits_for_claim(pod, event.message)
            ):
                return
            evidence = (event_evidence(event), settings)
            what = (
                "the change of the owners of files was taking longer than expected"
                if certainty is Certainty.CERTAIN
                else "the pod's volumes were not mounted in time"
            )
            yield make_finding(ID, pod, certainty, what, evidence, event.time, defect=_DEFECT)
            return
    if has_other_cause:
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


def _waits_for_claim(pod: LivePod, message: str) -> bool:
    """Return whether the kubelet waited for a claim that was attached.

    Kubelets that name no failed volumes name all of them as unattached (kubernetes
    `pkg/kubelet/volumemanager/volume_manager.go`).
    """
    lists = {name: set(names.split()) for name, names in _VOLUMES.findall(message)}
    waiting = lists.get("unmounted", set()) & persistent_volumes(pod)
    if (failed := lists.get("failed to process")) is not None:
        waiting -= failed | lists.get("unattached", set())
    return bool(waiting)


SYMPTOM = Symptom(
    id=ID,
    title=_DEFECT.title,
    defect=_DEFECT,
    areas=("pods", "events"),
    judge=judge,
    signs=_DEFECT.signs,
    against=_OTHER_CAUSES,
)
