"""Pods with fsGroup whose volumes take long to mount, because every file gets another owner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.defect import Sign
from webhook.inspect.findings import Certainty, Finding
from webhook.inspect.scan.symptoms.base import Case, event_evidence, symptom_of

_MIN_MOUNT_TIME = timedelta(seconds=120)
"""To attach and mount a volume takes seconds. The kubelet reports a timeout after two minutes."""
_IN_PROGRESS = next(each.signs[0] for each in DEFECTS if each.id == "fsgroup-ownership-walk")
_UNMOUNTED = "unmounted volumes="
_VOLUMES = re.compile(r"(unmounted|unattached|failed to process) volumes=\[([^\]]*)\]")
_FAILURES = (
    "FailedAttachVolume FailedMapVolume FailedMountOnFilesystemMismatch FileSystemResizeFailed "
    "VolumeResizeFailed FailedCreatePodSandBox FailedPodSandBoxStatus FailedCreatePodContainer "
    "FailedPrepareDynamicResources NetworkNotReady"
)
_OTHER_CAUSES = tuple(
    Sign(reason=reason, contains=contains, lacks=lacks, certainty="certain")
    for reason, contains, lacks in (
        *((reason, (), ()) for reason in _FAILURES.split()),
        ("Failed", ("error making pod data directories",), ()),
        # The kubelet's cache is filled soon, and applyFSGroup is the change of owners itself.
        ("FailedMount", (), (_UNMOUNTED, "failed to sync", "not registered", "applyFSGroup")),
        ("FailedMount", (_UNMOUNTED,), ("]: timed out waiting", "]: context deadline exceeded")),
        *((_IN_PROGRESS.reason, (kind,), ()) for kind in _IN_PROGRESS.lacks),
    )
)
"""What else delays a pod before its sandbox is ready (kubernetes `pkg/kubelet/events/event.go`)."""


def find(case: Case) -> Iterator[Finding]:
    """Yield the most certain finding about a pod."""
    pod = case.pod
    context = pod.spec.security_context
    if context is None or context.fs_group is None or not case.claims:
        return
    policy = context.fs_group_change_policy
    if policy == "OnRootMismatch":
        return
    settings = case.evidence(
        "spec.securityContext",
        f"fsGroup {context.fs_group}, fsGroupChangePolicy {policy or 'not set, which is Always'}",
    )
    has_other_cause = case.event(*_OTHER_CAUSES) is not None
    for sign in case.symptom.signs:
        if (event := case.event(sign)) is not None:
            what = "the change of the owners of files was taking longer than expected"
            if sign.certainty != "certain":
                if has_other_cause or not _waits_for_claim(case, event.message):
                    return
                what = "the pod's volumes were not mounted in time"
            evidence = (event_evidence(event), settings)
            yield case.finding(Certainty(sign.certainty), what, evidence, event.time)
            return
    if has_other_cause:
        return
    scheduled = pod.status.condition("PodScheduled")
    ready = pod.status.condition("PodReadyToStartContainers")
    if scheduled is None or ready is None or {scheduled.status, ready.status} != {"True"}:
        return
    begin, end = scheduled.last_transition_time, ready.last_transition_time
    if begin is None or end is None:
        return
    times = [each.first_time for each in case.events if each.reason == "SuccessfulAttachVolume"]
    if end - max([begin, *(each for each in times if each and each <= end)]) < _MIN_MOUNT_TIME:
        return
    has_restarted = any(each.restart_count for _, each in case.statuses)
    if has_restarted or (case.first_start or end) < end:
        return  # The sandbox is not the pod's first one, as after a restart of the node.
    seconds = round((end - begin).total_seconds())
    field = "status.conditions[PodReadyToStartContainers].lastTransitionTime"
    evidence = (case.evidence(field, f"{seconds} s after PodScheduled", end), settings)
    sentence = (
        f"the pod's sandbox was ready {seconds} s after the pod was scheduled; to attach volumes "
        "is part of this time"
    )
    yield case.finding(Certainty.POSSIBLE, sentence, evidence, end)


def _waits_for_claim(case: Case, message: str) -> bool:
    """Return whether the kubelet waited for a claim that was attached.

    Kubelets that name no failed volumes name all of them as unattached (kubernetes
    `pkg/kubelet/volumemanager/volume_manager.go`).
    """
    lists = {name: set(names.split()) for name, names in _VOLUMES.findall(message)}
    waiting = lists.get("unmounted", set()) & case.claims
    if (failed := lists.get("failed to process")) is not None:
        waiting -= failed | lists.get("unattached", set())
    return bool(waiting)


SYMPTOM = symptom_of("fsgroup-ownership-walk", ("pods", "events"), find, _OTHER_CAUSES)
