"""The explanation of a workload: what its next pod would get, and what its pods have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webhook.core.constants import ANNOTATION_SKIP
from webhook.core.pod import Pod
from webhook.core.preview.model import PodPreview
from webhook.inspect.cluster_flags import ClusterFlags
from webhook.inspect.explain.exported import ExportedForPod
from webhook.inspect.explain.model import EventNote, PodGroup, Unknown, WorkloadExplanation
from webhook.inspect.explain.next_pod import (
    audit_clause,
    is_called,
    missing_decision,
    next_pod_notes,
    would_change,
)
from webhook.inspect.explain.record import UNRECORDED, Record, record_of
from webhook.inspect.explain.target import ObjectTarget
from webhook.inspect.explain.today import (
    call_for,
    decide_today,
    evaluated_remedies,
    node_needs,
    unknown_parts,
)
from webhook.inspect.exported_policies import ExportedPolicy
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.scan.workload import WorkloadName
from webhook.inspect.webhook_calls import Called, WebhookCall

_MAX_EXAMPLES = 3
"""The number of pods that a group names, because people read it."""
_MAX_GROUPS = 20
"""The maximum number of groups of pods. Pods of one workload usually tell the same."""

_UNTOUCHED = "podsettle did not change the pod."
_OTHERS = "Other pods tell other things."


class PodGroups:
    """The pods of a workload, counted by what they tell. Its size does not grow with the pods."""

    def __init__(self) -> None:
        self._groups: dict[str, PodGroup] = {}
        # At most one count for each set of known remedies.
        self._by_remedies: Counter[frozenset[str]] = Counter()

    def add(self, name: str, pod: Pod) -> None:
        """Count one pod."""
        record = record_of(pod)
        self._by_remedies[record.shown] += 1
        state = _state(record)
        if state not in self._groups and len(self._groups) >= _MAX_GROUPS:
            state = _OTHERS
        group = self._groups.setdefault(state, PodGroup(state=state, count=0, examples=[]))
        group.count += 1
        if len(group.examples) < _MAX_EXAMPLES:
            group.examples.append(name)

    def lacking(self, remedies: frozenset[str]) -> tuple[int, int]:
        """Return how many pods have none of some remedies, and how many have only a part."""
        counts = self._by_remedies.items()
        none = sum(count for shown, count in counts if not shown & remedies)
        part = sum(count for shown, count in counts if shown & remedies and remedies - shown)
        return none, part

    @property
    def all(self) -> list[PodGroup]:
        """The groups, the largest first."""
        return sorted(self._groups.values(), key=lambda group: -group.count)


def _state(record: Record) -> str:
    """Return what podsettle did to a pod, as far as the pod shows it."""
    summary = " ".join(record.summary.split())
    if not record.applied:
        return UNRECORDED if record.unrecorded else summary or _UNTOUCHED
    if not summary:
        pairs = ", ".join(f"{policy}/{remedy}" for policy, remedy in record.applied)
        summary = f"podsettle applied {pairs}."
    if record.unshown:
        names = ", ".join(record.unshown)
        return f"The annotations say: {summary} But the pod shows no sign of {names}."
    return f"The annotations say: {summary}" if record.unverifiable else summary


def explain_workload(
    target: ObjectTarget,
    document: Mapping[str, Any],
    pods: PodGroups,
    cluster: KnownCluster,
    namespace: str,
    events: Sequence[EventNote] = (),
    unknown: Sequence[Unknown] = (),
    exported: Sequence[ExportedPolicy] = (),
) -> WorkloadExplanation:
    """Return the explanation of a workload.

    `unknown` is what the caller could not read, in addition to what `cluster` lacks. `exported` are
    the native policies of the cluster that change pods.
    """
    today = decide_today(cluster, document, namespace)
    call = call_for(cluster, today)
    metadata = today.before["metadata"] if today else {}
    opted_out = (metadata.get("annotations") or {}).get(ANNOTATION_SKIP, "")
    native = ExportedForPod(
        exported if today else (), cluster, namespace, metadata.get("labels") or {}, opted_out
    )
    return WorkloadExplanation(
        kind=target.kind.kind,
        namespace=namespace,
        name=target.name,
        verdict=_verdict(today, call, native),
        notes=[
            *native.notes(call),
            *(() if native.changes_all(today) else next_pod_notes(call, cluster.flags)),
        ],
        today=today,
        called=call.called.value if call else None,
        pods=pods.all,
        nodes=node_needs(cluster.view, evaluated_remedies(today)),
        events=list(events),
        unknown=[*unknown, *unknown_parts(cluster, namespace, call)],
        advice=list(
            _advice(target, today, pods, namespace, cluster.flags)
            if is_called(call) or native.changes_some(today)
            else ()
        ),
    )


def _verdict(today: PodPreview | None, call: WebhookCall | None, native: ExportedForPod) -> str:
    if today is None:
        return "What podsettle would do to the next pod is not known."
    if failure := missing_decision(today):
        return f"What podsettle would do to the next pod is not known: {failure}"
    if not would_change(today):
        if native.undecided:
            return "A native policy selects the next pod of this workload."
        return f"podsettle would not change the next pod of this workload{audit_clause(today)}."
    if call is None or call.called is Called.YES:
        return "podsettle would change the next pod of this workload."
    if native.changes_some(today):
        return "A native policy would change the next pod of this workload."
    if call.called is Called.NO:
        return (
            "podsettle would not change the next pod of this workload, because the API server does "
            "not call podsettle for it."
        )
    return (
        "podsettle would change the next pod of this workload if the API server calls podsettle "
        "for it."
    )


def _advice(
    target: ObjectTarget,
    today: PodPreview | None,
    pods: PodGroups,
    namespace: str,
    flags: ClusterFlags,
) -> Iterator[str]:
    """Yield what to do about pods that podsettle would change today."""
    if today is None:
        return
    wanted = frozenset(each.remedy for each in today.outcomes if each.changed)
    none, part = pods.lacking(wanted) if wanted else (0, 0)
    because = "because podsettle changes only new pods."
    sentences = []
    if none:
        sentences.append(f"{_pods_have(none)} no remedy, {because}")
    if part:
        sentences.append(f"{_pods_have(part)} only a part of the remedies, {because}")
    if not sentences:
        return
    kind, name = target.kind, target.name
    command = flags.command(WorkloadName(kind.kind, name, namespace, kind.group).rollout_command)
    sentences += [f"This replaces them: `{command}`."] if command else []
    yield " ".join(sentences)


def _pods_have(count: int) -> str:
    return "1 pod has" if count == 1 else f"{count} pods have"
