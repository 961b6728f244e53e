"""The one function that decides: a request and a view of the cluster in, a Decision out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from webhook.core.decision import Decision, Outcome, Reason
from webhook.core.image_config import NO_IMAGES, Images, KnownImages
from webhook.core.names import (
    ANNOTATION_APPLIED,
    ANNOTATION_MIRROR,
    ANNOTATION_SETTLED,
    ANNOTATION_SKIP,
)
from webhook.core.nodes import runs_on_windows
from webhook.core.patch import PodPatch
from webhook.core.policies import Policy
from webhook.core.policy import REMEDIES
from webhook.core.remedy import Context, Remedy
from webhook.core.review import Pod, Request, decode_pod
from webhook.core.view import ClusterView


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator told podsettle beside the policies."""

    own_namespace: str | None = None
    """The namespace that podsettle itself runs in: never touched."""
    linger_image: str | None = None
    """The helper's image, for deliveries that need it."""


def decide(
    request: Request, view: ClusterView, settings: Settings, images: KnownImages = NO_IMAGES
) -> Decision:
    """What to do with one admission request, given the images that were looked up for it.

    Raises one of `review.UNREADABLE` for a pod that Kubernetes would not send, and PatchError where
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
    coverage = view.policies.covering(namespace, settings.own_namespace)
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

    pod = decode_pod(request.object)
    reason = _left_alone(pod)
    if reason is not None:
        return _whole(reason)
    labels = pod.labels or {}
    policies = [policy for policy in coverage.policies if policy.covers_pod(labels)]
    if not policies:
        return Decision(notes or (Outcome(Reason.NO_POLICY),))

    context = Context(view, namespace, settings.linger_image, Images(images))
    skipped = _skipped_remedies(pod)
    patch = PodPatch(pod)
    mutating = _plan(policies, audit=False)
    outcomes = (
        *notes,
        *_unknown(skipped),
        *_run(mutating, pod, context, patch, skipped),
        # An audit never stands in the way of a policy that mutates, so it has a patch of its own.
        *_audited(_run(_plan(policies, audit=True), pod, context, PodPatch(pod), skipped)),
    )
    applied = dict.fromkeys(f"{o.policy}/{o.remedy}" for o in outcomes if o.changed)
    if applied:
        before = (pod.annotations or {}).get(ANNOTATION_APPLIED, "")
        known = dict.fromkeys(part for part in before.split(",") if part)
        patch.annotate(ANNOTATION_APPLIED, ",".join(known | applied))
        patch.annotate(ANNOTATION_SETTLED, patch.size)
    if not patch.annotations_fit:
        return _whole(Reason.ANNOTATIONS_FULL)
    names = tuple(policy.name for policy in policies)
    return Decision(outcomes, patch.checked_operations(), names, tuple(context.images.lacking))


def _whole(reason: Reason, message: str = "") -> Decision:
    return Decision((Outcome(reason, message=message),))


def _left_alone(pod: Pod) -> Reason | None:
    annotations = pod.annotations
    if annotations:
        if ANNOTATION_MIRROR in annotations:
            return Reason.MIRROR_POD
        if annotations.get(ANNOTATION_SKIP, "").strip() == "true":
            return Reason.POD_OPTED_OUT
    return Reason.WINDOWS_POD if runs_on_windows(pod.spec) else None


def _skipped_remedies(pod: Pod) -> frozenset[str]:
    text = (pod.annotations or {}).get(ANNOTATION_SKIP, "")
    return frozenset(part.strip() for part in text.split(",")) if text else frozenset()


def _unknown(skipped: frozenset[str]) -> Iterator[Outcome]:
    for name in sorted(skipped - REMEDIES.keys() - {"", "false"}):
        known = ", ".join(REMEDIES)
        message = f"{ANNOTATION_SKIP} names {name!r}; remedies are {known}, or true for all"
        yield Outcome(Reason.UNKNOWN_REMEDY, message=message)


def _plan(policies: list[Policy], *, audit: bool) -> dict[str, tuple[Policy, Remedy, Any]]:
    """Each remedy with the first policy that sets it."""
    plan: dict[str, tuple[Policy, Remedy, Any]] = {}
    for policy in policies:
        if policy.audit is audit:
            for name, remedy, settings in policy.remedies:
                plan.setdefault(name, (policy, remedy, settings))
    return {name: plan[name] for name in REMEDIES if name in plan}


def _run(
    plan: dict[str, tuple[Policy, Remedy, Any]],
    pod: Pod,
    context: Context,
    patch: PodPatch,
    skipped: frozenset[str],
) -> Iterator[Outcome]:
    for name, (policy, remedy, settings) in plan.items():
        if name in skipped:
            yield Outcome(Reason.POD_OPTED_OUT, name, policy.name)
            continue
        if policy.image_rules is not context.image_rules:
            context = replace(context, image_rules=policy.image_rules)
        for found in remedy(pod, settings, context, patch):
            yield Outcome(
                found.reason, name, policy.name, found.container, found.changed, found.message
            )


def _audited(outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    for o in outcomes:
        reason = Reason.WOULD_APPLY if o.changed else o.reason
        message = f"would be {o.message}" if o.changed and o.message else o.message
        yield Outcome(reason, o.remedy, o.policy, o.container, message=message)
