"""The explanation of one pod: what was done to it, why, and what would be done today."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from webhook.core.admission.summary import Skipped
from webhook.core.constants import ANNOTATION_SKIP
from webhook.core.pod import Container, Pod
from webhook.core.preview.model import PodPreview, PreviewOutcome
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.inspect.explain.advice import ADVICE
from webhook.inspect.explain.exported import ExportedForPod
from webhook.inspect.explain.model import (
    AppliedRemedy,
    ContainerExplanation,
    EventNote,
    LeftOut,
    PodExplanation,
    Unknown,
)
from webhook.inspect.explain.next_pod import (
    audit_clause,
    doctor_sentence,
    is_called,
    missing_decision,
    next_pod_notes,
    would_change,
)
from webhook.inspect.explain.record import (
    UNRECORDED,
    Record,
    container_changes,
    record_notes,
    record_of,
    remedy_fields,
)
from webhook.inspect.explain.symptoms import symptoms_of
from webhook.inspect.explain.today import (
    call_for,
    decide_today,
    evaluated_remedies,
    node_needs,
    node_sentence,
    unknown_parts,
)
from webhook.inspect.exported_policies import ExportedPolicy
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.next_pod import next_pod_document
from webhook.inspect.objects import Event, LivePod
from webhook.inspect.pod_and_policy_ages import compare_ages
from webhook.inspect.webhook_calls import Called, WebhookCall

_IN_FORCE = frozenset({Reason.APPLIED, Reason.ALREADY_SETTLED})
"""The reasons of a remedy that a pod has, or would get today."""

decode_live_pod = msgspec.json.Decoder(LivePod).decode
"""Decode a pod of the API server from JSON. Raises one of DECODE_ERRORS."""


def explain_pod(
    document: Mapping[str, Any],
    cluster: KnownCluster,
    namespace: str,
    events: Sequence[EventNote] = (),
    unknown: Sequence[Unknown] = (),
    exported: Sequence[ExportedPolicy] = (),
    pod_events: Sequence[Event] = (),
) -> PodExplanation:
    """Return the explanation of a pod. Raises one of DECODE_ERRORS for a malformed pod.

    `events` are podsettle's, and `pod_events` those about the pod by any component. `unknown` is
    what the caller could not read, in addition to what `cluster` lacks. `exported` are the native
    policies of the cluster that change pods.
    """
    live = decode_live_pod(msgspec.json.encode(document))
    pod = live.before_scheduling()
    record = record_of(pod)
    next_document = next_pod_document(document, cluster.view.runtime_classes)
    today = decide_today(cluster, next_document, namespace)
    lacks_remedies = would_change(decide_today(cluster, document, namespace))
    call = call_for(cluster, today)
    native = ExportedForPod(exported, cluster, namespace, pod.labels or {}, record.opted_out)
    outcomes = today.outcomes if today else []
    left_out = [_left_out(each, outcomes) for each in record.skipped]
    relevant = dict.fromkeys([*record.applied, *evaluated_remedies(today)])
    created = live.metadata.creation_timestamp
    return PodExplanation(
        namespace=namespace,
        name=live.metadata.name,
        verdict=_verdict(record, today, call, native, lacks_remedies=lacks_remedies),
        summary=record.summary,
        applied=[_applied(document, pair, today, call, native) for pair in record.applied],
        left_out=left_out,
        containers=list(_containers(pod, record, left_out)),
        events=list(events),
        symptoms=list(symptoms_of(live, cluster, pod_events)),
        notes=[
            *record_notes(record, pod),
            *native.notes(call, record, created),
            *(() if native.changes_all(today) else next_pod_notes(call, cluster.flags)),
            *(_lateness(record, today, created, cluster) if is_called(call) else ()),
        ],
        today=today,
        called=call.called.value if call else None,
        node=node_sentence(cluster.view, live.spec.node_name, (remedy for _, remedy in relevant)),
        nodes=node_needs(cluster.view, relevant),
        unknown=[*unknown, *unknown_parts(cluster, namespace, call)],
        advice=list(
            _advice(
                record,
                left_out,
                lacks_remedies and (is_called(call) or native.changes_some(today)),
            )
        ),
    )


def _left_out(skipped: Skipped, outcomes: Iterable[PreviewOutcome]) -> LeftOut:
    """Return what a pod lacks, with the sentence of today's decision if that has the same code."""
    key = skipped.container, skipped.remedy, skipped.reason
    sentences = (
        outcome.message
        for outcome in outcomes
        if (outcome.container, outcome.remedy, outcome.reason) == key
    )
    reason = Reason.of(skipped.reason)
    return LeftOut(
        reason=skipped.reason,
        remedy=skipped.remedy,
        container=skipped.container,
        sentence=next(sentences, reason.meaning if reason else "Another version of podsettle."),
    )


def _applied(
    document: Mapping[str, Any],
    pair: tuple[str, str],
    today: PodPreview | None,
    call: WebhookCall | None,
    native: ExportedForPod,
) -> AppliedRemedy:
    """Return one of the remedies that a pod says it has."""
    policy, remedy = pair
    known = REMEDIES.get(remedy)
    return AppliedRemedy(
        remedy=remedy,
        policy=policy,
        purpose=known.description if known else "",
        fields=remedy_fields(document, remedy),
        today=_why_not_today(pair, today, call, native) if today else "",
    )


def _why_not_today(
    pair: tuple[str, str], today: PodPreview, call: WebhookCall | None, native: ExportedForPod
) -> str:
    """Return why a policy would not apply a remedy today, in a sentence. Empty if it would."""
    if pair in native.undecided:
        return ""
    policy, remedy = pair
    of_remedy = [outcome for outcome in today.outcomes if outcome.remedy == remedy]
    in_force = [each for each in of_remedy if each.changed or each.reason in _IN_FORCE]
    if in_force:
        if call is not None and call.called is Called.NO and pair not in native.pairs:
            return f"The API server does not call podsettle: {call.why}."
        others = dict.fromkeys(outcome.policy for outcome in in_force)
        return "" if policy in others else f"Policy {', '.join(others)} sets this remedy instead."
    if of_remedy:
        return f"{of_remedy[0].reason}: {of_remedy[0].message}"
    whole_pod = [outcome for outcome in today.outcomes if not outcome.remedy]
    if whole_pod:
        return f"{whole_pod[0].reason}: {whole_pod[0].message}"
    return "No policy that covers the pod sets this remedy."


def _verdict(
    record: Record,
    today: PodPreview | None,
    call: WebhookCall | None,
    native: ExportedForPod,
    *,
    lacks_remedies: bool,
) -> str:
    """Return the answer to the question of the command, in a sentence."""
    if record.applied:
        return _changed_verdict(record, lacks_remedies=lacks_remedies)
    if record.unrecorded:
        more = " A policy asks for more than the pod has." if lacks_remedies else ""
        return f"{UNRECORDED}{more}"
    if record.skipped:
        return "podsettle did not change this pod, although a policy asked for it."
    if not record.is_empty:
        return "podsettle's annotations on this pod name no remedy."
    if today is None:
        return "This pod carries no sign of podsettle."
    if failure := missing_decision(today):
        return (
            "This pod carries no sign of podsettle. What podsettle would do to a new pod like this "
            f"one is not known: {failure}"
        )
    if not would_change(today):
        if native.undecided:
            return "podsettle did not change this pod. A native policy selects a new pod like it."
        return (
            "podsettle did not change this pod, and would not change a new pod like this one"
            f"{audit_clause(today)}."
        )
    if call is None or call.called is Called.YES:
        return "podsettle did not change this pod, but it would change a new pod like this one."
    if native.changes_some(today):
        return (
            "podsettle did not change this pod, but a native policy would change a new pod like "
            "this one."
        )
    if call.called is Called.NO:
        return (
            "podsettle did not change this pod. A policy covers it, but the API server does not "
            "call podsettle for a new pod like this one."
        )
    return (
        "podsettle did not change this pod. It would change a new pod like this one if the API "
        "server calls podsettle for it."
    )


def _changed_verdict(record: Record, *, lacks_remedies: bool) -> str:
    """Return the verdict on a pod whose annotations name remedies.

    `lacks_remedies` says whether podsettle would change the pod as it is.
    """
    text = "podsettle changed this pod when it was created"
    if record.unshown:
        names = ", ".join(record.unshown)
        return f"The annotations say that {text}, but the pod shows no sign of {names}."
    if record.unverifiable:
        return (
            f"The annotations say that {text}. This version of podsettle does not know all of the "
            "remedies."
        )
    if lacks_remedies:
        return f"{text}. A policy asks for more than the pod has."
    return f"{text}."


def _containers(
    pod: Pod, record: Record, left_out: Sequence[LeftOut]
) -> Iterator[ContainerExplanation]:
    """Yield what podsettle did to each container, in the order in which they start."""
    by_list: tuple[tuple[bool, list[Container] | None], ...] = (
        (True, pod.spec.init_containers),
        (False, pod.spec.containers),
    )
    for init, containers in by_list:
        for container in containers or ():
            yield ContainerExplanation(
                name=container.name,
                init=init,
                changes=container_changes(container, record),
                left_out=[each for each in left_out if each.container == container.name],
            )


def _lateness(
    record: Record, today: PodPreview | None, created: datetime | None, cluster: KnownCluster
) -> Iterator[str]:
    """Yield why a pod that a policy covers was not changed, as far as the times tell."""
    if not record.is_empty or today is None or not would_change(today):
        return
    acting = tuple(dict.fromkeys(each.policy for each in today.outcomes if each.changed))
    compared = compare_ages(created, acting, cluster.created)
    if compared is None:
        return
    yield f"T{compared.clause[1:]}."
    if compared.missed:
        yield (
            "Either podsettle did not answer when the pod was created, or the policy or the labels "
            f"of the namespace were changed since then. {doctor_sentence(cluster.flags)}"
        )


def _advice(
    record: Record, left_out: Sequence[LeftOut], gains_by_recreation: bool
) -> Iterator[str]:
    """Yield what the developer of the pod can do.

    `gains_by_recreation` says whether a new pod would get remedies that this pod lacks.
    """
    for code in dict.fromkeys(each.reason for each in left_out):
        reason = Reason.of(code)
        if reason is not None:
            yield f"{reason}: {ADVICE[reason]}"
    if record.applied:
        names = ",".join(dict.fromkeys(remedy for _, remedy in record.applied))
        yield (
            f"To do without these remedies, set the annotation `{ANNOTATION_SKIP}: {names}` in the "
            "pod template."
        )
    if gains_by_recreation:
        yield "Create the pod again, or restart its workload. podsettle changes only new pods."
