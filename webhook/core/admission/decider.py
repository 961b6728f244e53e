"""The decision about a pod, from the request, the policies and the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from webhook.core.admission.annotation_limit import annotations_fit
from webhook.core.admission.apply_plan import apply_plan
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decision import Decision, pod_decision
from webhook.core.admission.review import Request
from webhook.core.cluster.helper_version import helper_version
from webhook.core.cluster.nodes import Nodes, runs_on_windows
from webhook.core.cluster.view import ClusterFacts
from webhook.core.constants import ANNOTATION_MIRROR, ANNOTATION_SKIP
from webhook.core.decision_input import DecisionInput, facts_of, namespace_facts_of
from webhook.core.defects.versions import Version
from webhook.core.images import NO_IMAGES, Images, KnownImages, PullIdentity
from webhook.core.pod import DECODE_ERRORS, Pod
from webhook.core.policy.coverage import Coverage
from webhook.core.policy.snapshot import Snapshot
from webhook.core.pull_secrets import MAX_OBJECT_NAME_CHARACTERS, MAX_PULL_SECRETS
from webhook.core.reasons import Reason

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
    linger_version: Version | None = None
    """The version of the helper in the image, if the image's tag does not say it."""


class Decider:
    """Decides about admission requests, with one set of settings."""

    def __init__(self, settings: OperatorSettings, cache: DecisionCache | None = None) -> None:
        """With a cache, a decision may be that about another pod with the same facts."""
        self.settings = settings
        self._helper_version = helper_version(settings.linger_image, settings.linger_version)
        self._cache = cache
        self._snapshot: Snapshot | None = None

    def decide(
        self, request: Request[Any], snapshot: Snapshot, images: KnownImages = NO_IMAGES
    ) -> Decision:
        """Return the decision about one request. `images` are the results of earlier look-ups.

        Raises nothing: after an error the decision leaves the pod unchanged. A decision that uses
        results of look-ups is never cached.
        """
        try:
            return self._decide(request, snapshot, images)
        except DECODE_ERRORS as error:
            message = f"the pod was admitted unchanged: {error}"
            covered = self._covers_malformed(request, snapshot)
            return pod_decision(Reason.MALFORMED_POD, message, covered=covered)
        except Exception as error:
            message = f"the pod was admitted unchanged: {error!r}"
            return replace(pod_decision(Reason.INTERNAL_ERROR, message), error=error)

    def _decide(self, request: Request[Any], snapshot: Snapshot, images: KnownImages) -> Decision:
        """Return the decision about one request.

        Raises one of DECODE_ERRORS for a pod that Kubernetes would not send, and PatchError if the
        self-check rejects the patch.
        """
        resource = request.resource
        if (
            request.operation != "CREATE"
            or resource.resource != "pods"
            or resource.group
            or request.sub_resource
        ):
            return pod_decision(Reason.NOT_POD_CREATE)
        name = request.namespace or ""
        namespace = snapshot.namespace(name)
        if namespace is None:
            message = f"namespace {request.namespace!r} is not known"
            unknown = pod_decision(Reason.NAMESPACE_UNKNOWN, message, covered=True)
            return replace(unknown, missing_namespace=name)
        coverage = snapshot.policies.coverage_for(namespace, self.settings.own_namespace)
        if coverage.disabled:
            return pod_decision(Reason.NAMESPACE_DISABLED)
        if coverage.protected:
            return pod_decision(Reason.PROTECTED_NAMESPACE)
        if not coverage.policies:
            return _without_policy(coverage, name)
        if request.is_too_large:
            # To decode the labels, on which a policy may depend, would take too long.
            return pod_decision(Reason.POD_TOO_LARGE, covered=True)
        pod = request.pod
        plan = coverage.group.plan(pod.labels or {})
        reason = _exclusion_reason(pod, snapshot.nodes)
        if reason:
            covered = plan is not None and reason is not Reason.POD_OPTED_OUT
            return pod_decision(reason, covered=covered)
        if plan is None:
            return _without_policy(coverage, name)
        decision_input = DecisionInput(
            facts_of(pod),
            namespace_facts_of(
                namespace.name,
                namespace.labels,
                fixed_selinux_level=namespace.fixed_selinux_level,
            ),
        )
        cluster = self._cluster_facts(snapshot)
        found = Images(images, lambda: _pull_identity(pod, name))
        if self._cache is not None and not images:
            decision = self._cache.get_or_decide(pod, decision_input, plan, cluster, found)
        else:
            decision = apply_plan(decision_input, plan, cluster, found).about(pod)
        # The rest depends on the request, so no cached decision contains it.
        if not annotations_fit(pod.annotations, decision.annotations):
            # A remedy is worth more than the sentences about it.
            draft = apply_plan(decision_input, plan, cluster, found, with_notes=False)
            decision = draft.about(pod)
            if not annotations_fit(pod.annotations, decision.annotations):
                return pod_decision(Reason.ANNOTATIONS_FULL, covered=True)
        if coverage.missing_policy:
            outcomes = (*_without_policy(coverage, name).outcomes, *decision.outcomes)
            decision = replace(decision, outcomes=outcomes)
        return decision

    def _cluster_facts(self, view: Snapshot) -> ClusterFacts:
        """Return the facts about the cluster. They are kept until there is another snapshot."""
        if view is not self._snapshot:
            self._facts = ClusterFacts(
                view.nodes,
                view.runtime_classes,
                view.server_version,
                self.settings.linger_image,
                self._helper_version,
                self.settings.docs_url,
            )
            self._snapshot = view
        return self._facts

    def _covers_malformed(self, request: Request[Any], snapshot: Snapshot) -> bool:
        """Return whether policies cover a pod that cannot be decoded, as far as it can be read.

        If its labels cannot be read, the policies of its namespace count.
        """
        namespace = snapshot.namespace(request.namespace or "")
        if namespace is None:
            return False
        coverage = snapshot.policies.coverage_for(namespace, self.settings.own_namespace)
        if isinstance(request.object, Pod):
            return coverage.group.plan(request.object.labels or {}) is not None
        return bool(coverage.policies)


_NO_POLICY = pod_decision(Reason.NO_POLICY)


def _without_policy(coverage: Coverage, namespace: str) -> Decision:
    """Return the decision about a pod that no policy covers."""
    if not coverage.missing_policy:
        return _NO_POLICY
    asks = f"namespace {namespace!r} asks for policy {coverage.missing_policy!r}"
    message = f"{asks}, which does not exist"
    return pod_decision(Reason.POLICY_NOT_FOUND, message, covered=True)


def _exclusion_reason(pod: Pod, nodes: Nodes) -> Reason | None:
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
    names_os = spec.os is not None and bool(spec.os.name)
    is_windows = runs_on_windows(spec) or (not names_os and nodes.are_windows(spec))
    return Reason.WINDOWS_POD if is_windows else None


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
