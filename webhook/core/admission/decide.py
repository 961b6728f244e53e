"""The function that decides about a pod, from the request, the policies and the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from webhook.core.admission.cache import DecisionCache
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
from webhook.core.patch.verify import VerifiedShapes
from webhook.core.pod import Pod
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.plan import Plan, Step
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.base import Context

_MAX_CONTAINERS = 500
"""The maximum number of containers in a pod that is evaluated. Webhooks run before API validation,
so a client can choose any number. Real pods have at most a tenth of it."""
_MAX_SKIP_CHARACTERS = 1_000
"""The number of characters of ANNOTATION_SKIP that are read. A list of all remedies is shorter."""


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The settings that come from the command line instead of a policy."""

    own_namespace: str | None = None
    """The namespace in which podsettle itself runs. Its pods are never changed."""
    linger_image: str | None = None
    """The image of the helper, which some deliveries need."""


def decide(
    request: Request[Any],
    policies: PolicySet,
    view: ClusterView,
    settings: OperatorSettings,
    images: KnownImages = NO_IMAGES,
    cache: DecisionCache | None = None,
    *,
    cacheable: bool = True,
) -> Decision:
    """Decide about one admission request. `images` are the results of earlier image lookups.

    With a cache, the function may return the decision about another pod with the same key, and it
    **mutates the pod of the request**. For a cached decision the pod's annotations must leave
    enough space for those of podsettle. A caller that does not know this sets `cacheable` to False.
    The function then uses only the verified shapes of the cache.

    Raises one of DECODE_ERRORS for a pod that Kubernetes would not send, and PatchError if the
    self-check rejects the patch. In both cases the caller admits the pod unchanged.
    """
    resource = request.resource
    if (
        request.operation != "CREATE"
        or resource.resource != "pods"
        or resource.group
        or request.sub_resource
    ):
        return _pod_decision(Reason.NOT_POD_CREATE)
    namespace = view.namespace(request.namespace or "")
    if namespace is None:
        message = f"namespace {request.namespace!r} is not known"
        return _pod_decision(Reason.NAMESPACE_UNKNOWN, message)
    coverage = policies.coverage_for(namespace, settings.own_namespace)
    coverage_outcomes: tuple[Outcome, ...] = ()
    if coverage.missing_policy:
        message = f"namespace {namespace.name!r} asks for policy {coverage.missing_policy!r}"
        coverage_outcomes = (
            Outcome(Reason.POLICY_NOT_FOUND, message=f"{message}, which does not exist"),
        )
    if coverage.disabled:
        return _pod_decision(Reason.NAMESPACE_DISABLED)
    if coverage.protected:
        return _pod_decision(Reason.PROTECTED_NAMESPACE)
    if not coverage.policies:
        return Decision(coverage_outcomes or (Outcome(Reason.NO_POLICY),))

    pod = request.pod
    plan = coverage.group.plan(pod.labels or {})
    if plan is None:
        reason = _exclusion_reason(pod)
        if reason:
            return _pod_decision(reason)
        return Decision(coverage_outcomes or (Outcome(Reason.NO_POLICY),))

    def apply_plan(pod: Pod) -> Decision:
        context = Context(view, namespace, settings.linger_image, Images(images))
        verified = VerifiedShapes() if cache is None else cache.verified_shapes
        return _apply_plan(pod, plan, context, coverage_outcomes, verified)

    # The cache key contains no results of image look-ups. It contains no names of namespaces
    # either, but coverage_outcomes mention them.
    if cache is None or images or coverage_outcomes or not cacheable:
        return apply_plan(pod)
    return cache.get_or_decide(pod, plan, namespace, view, settings.linger_image, apply_plan)


def _apply_plan(
    pod: Pod,
    plan: Plan,
    context: Context,
    coverage_outcomes: tuple[Outcome, ...],
    verified_shapes: VerifiedShapes,
) -> Decision:
    """Decide about a pod that policies cover."""
    reason = _exclusion_reason(pod)
    if reason is not None:
        return _pod_decision(reason)
    skipped = _skipped_remedies(pod)
    outcomes = list(coverage_outcomes)
    if skipped:
        outcomes += _unknown_remedies(skipped)
    patch = PodPatch(pod)
    _run_steps(plan.mutating, pod, context, patch, skipped, outcomes)
    if any(outcome.changed for outcome in outcomes):
        _annotate_applied(pod, patch, outcomes)
        if not patch.annotations_fit:
            return _pod_decision(Reason.ANNOTATIONS_FULL)
    if plan.audited:
        audited: list[Outcome] = []
        _run_steps(plan.audited, pod, context, PodPatch(pod), skipped, audited)
        outcomes += map(_audit_outcome, audited)
    return Decision(
        tuple(outcomes),
        patch.verified_operations(verified_shapes),
        plan.policies,
        tuple(context.images.missing),
    )


def _pod_decision(reason: Reason, message: str = "") -> Decision:
    """Return a decision with one reason for the whole pod."""
    return Decision((Outcome(reason, message=message),))


def _exclusion_reason(pod: Pod) -> Reason | None:
    """Return the reason to leave the whole pod unchanged, or None."""
    annotations = pod.annotations
    if annotations:
        if ANNOTATION_MIRROR in annotations:
            return Reason.MIRROR_POD
        if annotations.get(ANNOTATION_SKIP, "").strip() == "true":
            return Reason.POD_OPTED_OUT
    spec = pod.spec
    if len(spec.init_containers or ()) + len(spec.containers or ()) > _MAX_CONTAINERS:
        return Reason.POD_TOO_LARGE
    return Reason.WINDOWS_POD if runs_on_windows(spec) else None


def _skipped_remedies(pod: Pod) -> frozenset[str]:
    """Return the names of remedies in the pod's annotation ANNOTATION_SKIP."""
    text = (pod.annotations or {}).get(ANNOTATION_SKIP, "")[:_MAX_SKIP_CHARACTERS]
    return frozenset(part.strip() for part in text.split(",")) if text else frozenset()


def _unknown_remedies(skipped: frozenset[str]) -> Iterator[Outcome]:
    """Yield one outcome if the pod asks to skip remedies that do not exist."""
    names = sorted(skipped - REMEDIES.keys() - {"", "false"})
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        known = ", ".join(REMEDIES)
        message = f"{ANNOTATION_SKIP} names {', '.join(map(repr, names[:3]))}{more}"
        yield Outcome(
            Reason.UNKNOWN_REMEDY, message=f"{message}; use true, or names of remedies: {known}"
        )


def _run_steps(
    steps: tuple[Step, ...],
    pod: Pod,
    context: Context,
    patch: PodPatch,
    skipped: frozenset[str],
    outcomes: list[Outcome],
) -> None:
    """Apply the remedies of the steps in order, and append their outcomes to `outcomes`."""
    for remedy, policy, settings in steps:
        if remedy.name in skipped:
            outcomes.append(Outcome(Reason.POD_OPTED_OUT, remedy.name, policy.name))
            continue
        if policy.image_rules is not context.image_rules:
            context = replace(context, image_rules=policy.image_rules)
        outcomes += [
            Outcome(
                outcome.reason,
                remedy.name,
                policy.name,
                outcome.container,
                outcome.changed,
                outcome.message,
            )
            for outcome in remedy.apply(pod, settings, context, patch)
        ]


def _annotate_applied(pod: Pod, patch: PodPatch, outcomes: list[Outcome]) -> None:
    """Annotate the pod with the remedies of this call and of earlier calls of the webhook."""
    before = (pod.annotations or {}).get(ANNOTATION_APPLIED)
    applied = dict.fromkeys(part for part in before.split(",") if part) if before else {}
    for outcome in outcomes:
        if outcome.changed:
            applied[f"{outcome.policy}/{outcome.remedy}"] = None
    patch.annotate(ANNOTATION_APPLIED, ",".join(applied))
    patch.annotate(ANNOTATION_SETTLED, patch.settled_fingerprint)


def _audit_outcome(outcome: Outcome) -> Outcome:
    """Return the outcome of a remedy under `action: Audit`, which changes nothing."""
    if not outcome.changed:
        return outcome
    message = f"would be {outcome.message}" if outcome.message else ""
    return replace(outcome, reason=Reason.WOULD_APPLY, changed=False, message=message)
