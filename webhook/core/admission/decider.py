"""The function that decides about a pod, from the request, the policies and the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from webhook.core.admission.annotation_limit import annotations_fit
from webhook.core.admission.apply_plan import decide_input
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decision import Decision
from webhook.core.admission.review import Request
from webhook.core.cluster.nodes import runs_on_windows
from webhook.core.cluster.view import ClusterFacts, ClusterView
from webhook.core.constants import ANNOTATION_MIRROR, ANNOTATION_SKIP
from webhook.core.images import NO_IMAGES, Images, KnownImages, PullIdentity
from webhook.core.pod import Pod
from webhook.core.pod_facts import DecisionInput, facts_of, namespace_facts_of
from webhook.core.policy.coverage import PolicySet
from webhook.core.pull_secrets import MAX_OBJECT_NAME_CHARACTERS, MAX_PULL_SECRETS
from webhook.core.reasons import Outcome, Reason

_MAX_CONTAINERS = 500
"""The maximum number of containers in a pod that is evaluated. Webhooks run before API validation,
so a client can choose any number. Real pods have at most a tenth of it."""


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The settings that come from the command line instead of a policy."""

    own_namespace: str | None = None
    """The namespace in which podsettle itself runs. Its pods are never changed."""
    linger_image: str | None = None
    """The image of the helper, which some deliveries need."""
    docs_url: str | None = None
    """The URL of the page that explains podsettle to a developer whose pod it changed."""


def decide(
    request: Request[Any],
    policies: PolicySet,
    view: ClusterView,
    settings: OperatorSettings,
    images: KnownImages = NO_IMAGES,
    cache: DecisionCache | None = None,
) -> Decision:
    """Decide about one admission request. `images` are the results of earlier image lookups.

    With a cache, the function may return the decision about another pod with the same facts. A
    decision that uses results of image lookups is never cached.

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
    reason = _exclusion_reason(pod)
    if reason:
        return _pod_decision(reason)
    if plan is None:
        return Decision(coverage_outcomes or (Outcome(Reason.NO_POLICY),))
    decision_input = DecisionInput(
        facts_of(pod),
        namespace_facts_of(namespace.name, fixed_selinux_level=namespace.fixed_selinux_level),
    )
    cluster = ClusterFacts(
        view.nodes,
        view.runtime_classes,
        view.server_version,
        settings.linger_image,
        settings.docs_url,
    )
    if cache is not None and not images:
        decision = cache.get_or_decide(namespace.name, decision_input, plan, cluster)
    else:
        known = Images(images, _pull_identity(pod, namespace.name))
        decision = decide_input(decision_input, plan, cluster, known)
    # The rest depends on the request, so no cached decision contains it.
    if not annotations_fit(pod.annotations, *decision.needed_space):
        # A remedy is worth more than the sentences about it.
        known = Images(images, _pull_identity(pod, namespace.name))
        decision = decide_input(decision_input, plan, cluster, known, with_notes=False)
        if not annotations_fit(pod.annotations, *decision.needed_space):
            return _pod_decision(Reason.ANNOTATIONS_FULL)
    if decision.missing_images:
        identity = _pull_identity(pod, namespace.name)
        missing = tuple([identity.complete(query) for query in decision.missing_images])
        decision = replace(decision, missing_images=missing)
    if coverage_outcomes:
        decision = replace(decision, outcomes=(*coverage_outcomes, *decision.outcomes))
    return decision


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


def _pull_identity(pod: Pod, namespace: str) -> PullIdentity:
    """Return how the images of a pod are pulled, with every part bounded in length.

    The API server has not validated the pod yet, and a query occupies memory as the cache key of
    its result. Each part is cut to one character, or one secret, more than its limit. So the
    look-up still detects a part that exceeds its limit.
    """
    spec = pod.spec
    secrets = (spec.image_pull_secrets or ())[: MAX_PULL_SECRETS + 1]
    return PullIdentity(
        namespace,
        tuple(secret.name[: MAX_OBJECT_NAME_CHARACTERS + 1] for secret in secrets),
        (spec.service_account_name or "default")[: MAX_OBJECT_NAME_CHARACTERS + 1],
    )
