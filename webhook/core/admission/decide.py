"""The one function that decides: a request and a view of the cluster in, a Decision out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from webhook.core.admission.cache import Memory
from webhook.core.admission.decision import Decision
from webhook.core.admission.review import Request
from webhook.core.cluster.nodes import runs_on_windows
from webhook.core.cluster.view import ClusterView
from webhook.core.constants import (
    ANNOTATION_APPLIED,
    ANNOTATION_MIRROR,
    ANNOTATION_SETTLED,
    ANNOTATION_SKIP,
)
from webhook.core.images import NO_IMAGES, Images, KnownImages
from webhook.core.patch.builder import PodPatch
from webhook.core.patch.verify import Proofs
from webhook.core.pod import Pod
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import REMEDIES
from webhook.core.policy.plan import Plan, Step
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies.base import Context

_MOST_CONTAINERS = 500
"""Nobody has a tenth of it, and the API server looks at a pod's size after the webhooks only."""
_LONGEST_SKIP = 1_000
"""Characters of the annotation that are read: all remedies several times over."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator told podsettle beside the policies."""

    own_namespace: str | None = None
    """The namespace that podsettle itself runs in: never touched."""
    linger_image: str | None = None
    """The helper's image, for deliveries that need it."""


def decide(
    request: Request[Any],
    policies: PolicySet,
    view: ClusterView,
    settings: Settings,
    images: KnownImages = NO_IMAGES,
    memory: Memory | None = None,
    *,
    reusable: bool = True,
) -> Decision:
    """What to do with one admission request, given the images that were looked up for it.

    With a memory the decision may be one that was made on another pod of the same make; the pod in
    the request is used up, and has to be one whose annotations leave room for podsettle's. With
    one that is not `reusable` only the proofs in the memory are used. Without a memory nothing is
    remembered.

    Raises one of `DECODE_ERRORS` for a pod that Kubernetes would not send, and PatchError where
    the self-check refuses the patch; the caller admits the pod unchanged in either case.
    """
    resource = request.resource
    if (
        request.operation != "CREATE"
        or resource.resource != "pods"
        or resource.group
        or request.sub_resource
    ):
        return _whole(Reason.NOT_POD_CREATE)
    namespace = view.namespace(request.namespace or "")
    if namespace is None:
        return _whole(Reason.NAMESPACE_UNKNOWN, f"namespace {request.namespace!r} is not known")
    coverage = policies.coverage_for(namespace, settings.own_namespace)
    notes: tuple[Outcome, ...] = ()
    if coverage.missing_policy:
        message = f"namespace {namespace.name!r} asks for policy {coverage.missing_policy!r}"
        notes = (Outcome(Reason.POLICY_NOT_FOUND, message=f"{message}, which does not exist"),)
    if coverage.disabled:
        return _whole(Reason.NAMESPACE_DISABLED)
    if coverage.protected:
        return _whole(Reason.PROTECTED_NAMESPACE)
    if not coverage.policies:
        return Decision(notes or (Outcome(Reason.NO_POLICY),))

    pod = request.pod
    plan = coverage.group.plan(pod.labels or {})
    if plan is None:
        reason = _left_alone(pod)
        return _whole(reason) if reason else Decision(notes or (Outcome(Reason.NO_POLICY),))

    def settle(pod: Pod) -> Decision:
        context = Context(view, namespace, settings.linger_image, Images(images))
        return _settle(pod, plan, context, notes, Proofs() if memory is None else memory.proofs)

    # Images that were looked up and notes, which name the namespace, are not what is remembered by.
    if memory is None or images or notes or not reusable:
        return settle(pod)
    return memory.settle(pod, plan, namespace, view, settings.linger_image, settle)


def _settle(
    pod: Pod, plan: Plan, context: Context, notes: tuple[Outcome, ...], proofs: Proofs
) -> Decision:
    """What becomes of a pod by the plan for it."""
    reason = _left_alone(pod)
    if reason is not None:
        return _whole(reason)
    skipped = _skipped_remedies(pod)
    outcomes = [*notes, *_unknown(skipped)] if skipped else list(notes)
    patch = PodPatch(pod)
    _run(plan.mutating, pod, context, patch, skipped, outcomes)
    if any(outcome.changed for outcome in outcomes):
        _sign(pod, patch, outcomes)
        if not patch.annotations_fit:
            return _whole(Reason.ANNOTATIONS_FULL)
    if plan.audited:
        audited: list[Outcome] = []
        _run(plan.audited, pod, context, PodPatch(pod), skipped, audited)
        outcomes += map(_audited, audited)
    return Decision(
        tuple(outcomes),
        patch.checked_operations(proofs),
        plan.policies,
        tuple(context.images.missing),
    )


def _whole(reason: Reason, message: str = "") -> Decision:
    return Decision((Outcome(reason, message=message),))


def _left_alone(pod: Pod) -> Reason | None:
    annotations = pod.annotations
    if annotations:
        if ANNOTATION_MIRROR in annotations:
            return Reason.MIRROR_POD
        if annotations.get(ANNOTATION_SKIP, "").strip() == "true":
            return Reason.POD_OPTED_OUT
    spec = pod.spec
    if len(spec.init_containers or ()) + len(spec.containers or ()) > _MOST_CONTAINERS:
        return Reason.POD_TOO_LARGE
    return Reason.WINDOWS_POD if runs_on_windows(spec) else None


def _skipped_remedies(pod: Pod) -> frozenset[str]:
    text = (pod.annotations or {}).get(ANNOTATION_SKIP, "")[:_LONGEST_SKIP]
    return frozenset(part.strip() for part in text.split(",")) if text else frozenset()


def _unknown(skipped: frozenset[str]) -> Iterator[Outcome]:
    names = sorted(skipped - REMEDIES.keys() - {"", "false"})
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        known = ", ".join(REMEDIES)
        message = f"{ANNOTATION_SKIP} names {', '.join(map(repr, names[:3]))}{more}"
        yield Outcome(
            Reason.UNKNOWN_REMEDY, message=f"{message}; remedies are {known}, or true for all"
        )


def _run(
    steps: tuple[Step, ...],
    pod: Pod,
    context: Context,
    patch: PodPatch,
    skipped: frozenset[str],
    outcomes: list[Outcome],
) -> None:
    for remedy, policy, apply, settings in steps:
        if remedy in skipped:
            outcomes.append(Outcome(Reason.POD_OPTED_OUT, remedy, policy.name))
            continue
        if policy.image_rules is not context.image_rules:
            context = replace(context, image_rules=policy.image_rules)
        name = policy.name
        outcomes += [
            Outcome(given.reason, remedy, name, given.container, given.changed, given.message)
            for given in apply(pod, settings, context, patch)
        ]


def _sign(pod: Pod, patch: PodPatch, outcomes: list[Outcome]) -> None:
    """Annotate the pod with what was applied to it, now or before."""
    before = (pod.annotations or {}).get(ANNOTATION_APPLIED)
    applied = dict.fromkeys(part for part in before.split(",") if part) if before else {}
    for outcome in outcomes:
        if outcome.changed:
            applied[f"{outcome.policy}/{outcome.remedy}"] = None
    patch.annotate(ANNOTATION_APPLIED, ",".join(applied))
    patch.annotate(ANNOTATION_SETTLED, patch.size)


def _audited(outcome: Outcome) -> Outcome:
    if not outcome.changed:
        return outcome
    message = f"would be {outcome.message}" if outcome.message else ""
    return replace(outcome, reason=Reason.WOULD_APPLY, changed=False, message=message)
