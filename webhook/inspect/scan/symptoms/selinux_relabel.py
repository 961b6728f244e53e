"""Containers of CRI-O whose creation takes too long because volumes are relabelled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from webhook.core.defects.defect import Sign
from webhook.core.defects.versions import Version
from webhook.core.pod import Volume
from webhook.core.remedies.skip_selinux_relabel import relabels_nothing
from webhook.inspect.findings import Certainty, Finding
from webhook.inspect.scan.symptoms.base import Case, event_evidence, symptom_of

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
_ALL_LABELLED = Version(1, 33)
_ACCOUNT_VOLUME = "kube-api-access-"
"""kubernetes `plugin/pkg/admission/serviceaccount/admission.go`."""


def find(case: Case) -> Iterator[Finding]:
    """Yield the most certain finding about a pod.

    Other causes delay the creation of containers of pods without volumes.
    """
    name = case.pod.spec.node_name
    if relabels_nothing(case.pod.spec) or _node_namespaces_have_no_label(case):
        return
    may_be_relabelled = bool(case.claims) and case.event(_OTHER_STAGE) is None
    for sign in case.symptom.signs:
        if (event := case.event(sign)) is None:
            continue
        sentence = f"CRI-O did not create a container of the pod in time on node {name}"
        certainty = Certainty(sign.certainty) if may_be_relabelled else None
        if sign.certainty == "certain":
            sentence += ", because it was still at the pod's volumes"
            certainty = _of_stage(case.mounted_volumes)
        if certainty is not None:
            found = case.finding(certainty, sentence, [event_evidence(event)], event.time)
            yield from case.on_node(found)
            return
    for path, status in case.statuses:
        waiting = status.state.waiting if status.state is not None else None
        if waiting is None or waiting.reason != _WAITING_REASON or not may_be_relabelled:
            continue
        message = waiting.message
        if _TIMEOUT not in message or _OTHER_STAGE.is_in(message):
            continue
        sentence = (
            f"the creation of container {status.name} timed out on node {name}, and the pod has a "
            "persistent volume"
        )
        evidence = [
            case.evidence(f"{path}.state.waiting.reason", waiting.reason),
            case.evidence(f"{path}.state.waiting.message", message),
        ]
        yield from case.on_node(case.finding(Certainty.POSSIBLE, sentence, evidence))
        return


def _node_namespaces_have_no_label(case: Case) -> bool:
    """Return whether the node's CRI-O relabels no volume, because of the pod's namespaces.

    Before 1.33, the volumes of pods with hostPID or hostIPC get no label (`addOCIBindMounts` in
    cri-o `server/container_create_linux.go`).
    """
    spec, node = case.pod.spec, case.facts.nodes.get(case.pod.spec.node_name or "")
    release = node.runtime.version if node is not None else None
    return bool(spec.host_pid or spec.host_ipc) and release is not None and release < _ALL_LABELLED


def _of_stage(mounted: Iterable[Volume]) -> Certainty | None:
    """Return how certain an event at the stage of volumes is. None if no volume counts.

    The kubelet has neither host paths, NFS nor read-only claims relabelled, and volumes of secrets
    are small. Which of these a volume is, is not read, but for claims and the token that the API
    server adds to each pod.
    """
    volumes = [
        each
        for each in mounted
        if not each.name.startswith(_ACCOUNT_VOLUME)
        and (each.persistent_volume_claim is None or each.is_persistent)
    ]
    if any(each.empty_dir or each.is_persistent for each in volumes):
        return Certainty.CERTAIN
    return Certainty.POSSIBLE if volumes else None


SYMPTOM = symptom_of("crio-selinux-relabel", ("pods", "nodes", "events"), find, (_OTHER_STAGE,))
