"""The decision on the facts about a request: the remedies of a plan, applied in order.

A draft depends only on the arguments of `apply_plan`. The decision cache calls it with the
values that its key encodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import force_setattr, replace

from webhook.core.admission.decision import Decision, Draft
from webhook.core.admission.summary import kept_entries, notes_for, unmet_outcomes
from webhook.core.cluster.view import ClusterFacts
from webhook.core.constants import (
    ANNOTATION_APPLIED,
    ANNOTATION_SETTLED,
    ANNOTATION_SKIP,
    ANNOTATION_SKIPPED,
)
from webhook.core.decision_input import DecisionInput, PodFacts
from webhook.core.images import Images
from webhook.core.patch.builder import PodPatch
from webhook.core.patch.received_command import encode_template
from webhook.core.policy.plan import Plan, Step
from webhook.core.printable import list_first
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.base import Context

_MAX_APPLIED_CHARACTERS, _MAX_APPLIED_PAIRS = 4_096, 100
"""What is read of ANNOTATION_APPLIED. podsettle writes at most 2 KiB."""
_MAX_SKIP_CHARACTERS = 1_000
"""The number of characters of ANNOTATION_SKIP that are read. A list of all remedies is shorter."""


def apply_plan(
    decision_input: DecisionInput,
    plan: Plan,
    cluster: ClusterFacts,
    images: Images,
    *,
    with_notes: bool = True,
) -> Draft:
    """Return the decision about pods that policies cover, without their commands.

    `with_notes` says whether the patch may set the annotations for people.

    The result does not consider the length of annotations that the pod has of others.

    Raises one of DECODE_ERRORS for a pod that Kubernetes would not send, and PatchError if the
    self-check rejects the patch.
    """
    pod = decision_input.pod
    context = Context(cluster, decision_input.namespace, images)
    skipped = skipped_remedies(pod.annotations)
    outcomes: list[Outcome] = []
    patch = PodPatch(pod)
    _run_steps(plan.mutating, pod, context, patch, skipped, outcomes)
    changed = [outcome for outcome in outcomes if outcome.changed]
    if changed:
        _annotate_applied(pod, patch, changed)
    if with_notes:
        _annotate_notes(pod, patch, outcomes, cluster.docs_url)
    if skipped:
        outcomes = [*unknown_remedies(skipped), *outcomes]
    if plan.audited:
        audited: list[Outcome] = []
        _run_steps(plan.audited, pod, context, PodPatch(pod), skipped, audited)
        outcomes += map(_audit_outcome, audited)
    operations = patch.verified_operations(plan.settable_fields)
    decision = Decision(
        tuple(outcomes),
        plan.policies,
        annotations=patch.annotations,
        missing_images=tuple(images.missing),
    )
    return Draft(decision, encode_template(operations) if operations else None)


def skipped_remedies(annotations: Mapping[str, str] | None) -> frozenset[str]:
    """Return the names of remedies in a pod's annotation ANNOTATION_SKIP."""
    if not annotations:
        return frozenset()
    text = annotations.get(ANNOTATION_SKIP, "")[:_MAX_SKIP_CHARACTERS]
    return frozenset(part.strip() for part in text.split(",")) if text else frozenset()


def unknown_remedies(skipped: frozenset[str]) -> Iterator[Outcome]:
    """Yield one outcome if the pod asks to skip remedies that do not exist."""
    names = sorted(skipped - REMEDIES.keys() - {"", "false"})
    if names:
        known = ", ".join(REMEDIES)
        message = f"{ANNOTATION_SKIP} names {list_first([*map(repr, names)], 3)}"
        yield Outcome(
            Reason.UNKNOWN_REMEDY, message=f"{message}; use true, or names of remedies: {known}"
        )


def _run_steps(
    steps: tuple[Step, ...],
    pod: PodFacts,
    context: Context,
    patch: PodPatch,
    skipped: frozenset[str],
    outcomes: list[Outcome],
) -> None:
    """Apply the remedies of the steps in order, and append their outcomes to `outcomes`."""
    for remedy, policy, settings, effect in steps:
        if remedy.name in skipped:
            outcomes.append(Outcome(Reason.POD_OPTED_OUT, remedy.name, policy.name))
            continue
        if policy.image_rules is not context.image_rules:
            context = replace(context, image_rules=policy.image_rules)
        for outcome in remedy.apply(pod, settings, context, patch):
            # Each outcome is a new object, and a copy of it would take longer. A remedy that
            # yielded one object twice would give both the last policy.
            force_setattr(outcome, "remedy", remedy.name)
            force_setattr(outcome, "policy", policy.name)
            if not outcome.changed and outcome.reason is not Reason.ALREADY_SETTLED:
                force_setattr(outcome, "effect", "")
            elif not outcome.effect:
                force_setattr(outcome, "effect", effect)
            outcomes.append(outcome)
        patch.check_declared(remedy.edits, remedy.fields)


def _annotate_applied(pod: PodFacts, patch: PodPatch, changed: list[Outcome]) -> None:
    """Annotate the pod with the remedies of this call and of earlier calls of the webhook.

    `changed` holds the outcomes of this call that have an edit in the patch.
    """
    before = (pod.annotations or {}).get(ANNOTATION_APPLIED)
    applied = dict.fromkeys(part for part in before.split(",") if part) if before else {}
    for outcome in changed:
        applied[f"{outcome.policy}/{outcome.remedy}"] = None
    patch.annotate(ANNOTATION_APPLIED, ",".join(applied))
    patch.annotate(ANNOTATION_SETTLED, patch.settled_fingerprint)


def parse_applied(annotations: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """Return the policies and remedies that annotations say were applied. Any user may write them.

    At most `_MAX_APPLIED_PAIRS` are read.
    """
    text = (annotations or {}).get(ANNOTATION_APPLIED, "")[:_MAX_APPLIED_CHARACTERS]
    pairs = [part.partition("/") for part in text.split(",") if "/" in part]
    return tuple((policy, remedy) for policy, _, remedy in pairs[:_MAX_APPLIED_PAIRS])


def _annotate_notes(
    pod: PodFacts, patch: PodPatch, outcomes: list[Outcome], docs_url: str | None
) -> None:
    """Annotate the pod with what people should know of the outcomes.

    With another edit, both annotations are written from the outcomes alone. No edit removes an
    annotation, so one that no longer says anything becomes empty.

    Without another edit, they are written only if ANNOTATION_SKIPPED then gains an entry, and they
    keep the entries of earlier calls. Such a call may have been that of a replica of another
    version, whose codes differ. If entries could disappear, two versions would replace each other's
    annotations for ever.
    """
    received, unmet = pod.annotations or {}, unmet_outcomes(outcomes)
    kept: list[str] = []
    only_notes = patch.is_empty
    if only_notes:
        if not unmet:
            return
        names = {each.name for each in pod.all_containers}
        kept = kept_entries(received.get(ANNOTATION_SKIPPED, ""), names)
    notes = notes_for(outcomes, unmet, received.get(ANNOTATION_APPLIED, ""), docs_url, kept)
    if only_notes and ANNOTATION_SKIPPED in received:
        entries = kept_entries(notes[ANNOTATION_SKIPPED], names)
        if len(entries) <= len(kept):
            return
    for key, text in notes.items():
        if text or key in received:
            patch.annotate(key, text)


def _audit_outcome(outcome: Outcome) -> Outcome:
    """Return the outcome of a remedy under `action: Audit`, which changes nothing."""
    if not outcome.changed:
        return outcome
    message = f"would be {outcome.message}" if outcome.message else ""
    if outcome.reason is not Reason.APPLIED:
        message = f"would have the reason {outcome.reason}: {outcome.sentence}"
    return replace(outcome, reason=Reason.WOULD_APPLY, changed=False, message=message)
