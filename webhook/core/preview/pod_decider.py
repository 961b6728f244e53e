"""Decisions on the pods of a preview. The CLI and the server make them in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from webhook.core.admission.decider import Decider, OperatorSettings
from webhook.core.admission.decision import Decision, pod_decision
from webhook.core.admission.etcd_limit import within_etcd_limit
from webhook.core.admission.response import warnings_for
from webhook.core.admission.review import Request, decode_review, encode_creation
from webhook.core.admission.summary import summary_of
from webhook.core.cluster.view import Namespace
from webhook.core.decision_input import facts_of
from webhook.core.images import NO_IMAGES, KnownImages
from webhook.core.labels import Labels
from webhook.core.pod import DECODE_ERRORS
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.policy_matches import PolicyMatch, match_policies, shown_outcomes
from webhook.core.policy.snapshot import Snapshot
from webhook.core.preview.runtime_class_fields import class_fields, with_fields
from webhook.core.reasons import Outcome, Reason

DEFAULT_NAMESPACE = "default"
_NEEDS_FS_GROUP = "fsGroupChangePolicy"
_SCC_NOTE = (
    "OpenShift's SCC admission may set fsGroup before the webhook is called, and "
    f"{_NEEDS_FS_GROUP} then applies: preview a pod that was created to see it"
)


@dataclass(frozen=True, slots=True)
class PodDecision:
    """The decision on one pod of a preview, and what it was decided from."""

    namespace: str
    decision: Decision
    outcomes: tuple[Outcome, ...]
    """The outcomes for people (`shown_outcomes`)."""
    labels: Labels | None
    """The labels of the pod. None if the pod cannot be decoded."""
    policies: tuple[str, ...]
    """The names of the policies that cover the pod, also if the whole pod is left as it is."""
    all_policies: PolicySet
    """The policies in force."""
    settings: OperatorSettings
    namespace_seen: Namespace | None
    """The namespace with the labels that the decision read. None if the view does not know it."""
    namespace_known: bool
    """Whether the view contains the namespace, or the caller gave its labels."""
    class_fields: dict[str, Any]
    """The fields of the pod's spec that the API server sets for its RuntimeClass and project."""
    notes: tuple[str, ...]
    """What the decision assumes, for people."""

    @property
    def summary(self) -> str:
        """The decision in one sentence."""
        return summary_of(self.outcomes)

    @property
    def policy_matches(self) -> tuple[PolicyMatch, ...]:
        """What each policy does about the pod, and why."""
        if self.namespace_seen is None or self.labels is None:
            return ()
        return match_policies(
            self.all_policies,
            self.namespace_seen,
            self.labels,
            self.settings.own_namespace,
            self.outcomes,
        )

    def render(self) -> dict[str, Any]:
        """Return the members of a PodPreview that depend on the decision, for JSON."""
        docs_url = self.settings.docs_url
        return {
            "namespace": self.namespace,
            "namespaceKnown": self.namespace_known,
            "summary": self.summary,
            "notes": self.notes,
            "policies": self.policies,
            "policyMatches": self.policy_matches,
            "outcomes": [
                {
                    "reason": outcome.reason,
                    "remedy": outcome.remedy,
                    "policy": outcome.policy,
                    "container": outcome.container,
                    "changed": outcome.changed,
                    "warns": outcome.reason.warns,
                    "message": outcome.sentence,
                    "meaning": outcome.reason.meaning,
                    "explanation": f"{docs_url}#{outcome.reason.lower()}" if docs_url else None,
                }
                for outcome in self.outcomes
            ],
            "warnings": warnings_for(self.outcomes),
            "patch": self.decision.operations,
        }


class PodDecider:
    """Decides on the pods of one preview, as the webhook would."""

    def __init__(
        self,
        view: Snapshot,
        settings: OperatorSettings,
        *,
        namespace_labels: Mapping[str, str] | None = None,
        namespaces_read: bool = True,
    ) -> None:
        """`namespace_labels` replace the labels that the namespaces of pods have in the view.

        `namespaces_read` says whether the view has the namespaces of the cluster.
        """
        # Clients choose the labels, so their previews must not evict results that reviews have
        # cached.
        self._view = replace(view, policies=view.policies.of(view.policies.documents))
        self._decider = Decider(settings)
        self._namespace_labels = namespace_labels
        self._namespaces_read = namespaces_read
        self._relabelled: set[str] = set()

    def decide(self, pod: object, namespace: str, images: KnownImages = NO_IMAGES) -> PodDecision:
        """Return the decision on a pod: an object, or its JSON as `msgspec.Raw`. Raises nothing.

        `images` are the results of look-ups.
        """
        # A copy of all namespaces for each pod would cost more than its decision.
        if self._namespace_labels is not None and namespace not in self._relabelled:
            self._relabelled.add(namespace)
            self._view = self._view.with_namespace_labels(namespace, self._namespace_labels)
        view = self._view
        namespace_seen = view.namespace(namespace)
        project = namespace_seen.node_selector if namespace_seen else {}
        of_class = class_fields(pod, view.runtime_classes, project)
        review = encode_creation(with_fields(pod, of_class.spec), namespace)
        request = decode_review(review).request
        if of_class.refusal:
            # The API server refuses the pod before it calls a webhook.
            decision = pod_decision(Reason.RUNTIME_CLASS_CONFLICT, of_class.refusal)
        else:
            decision = within_etcd_limit(self._decider.decide(request, view, images), review)
        settings = self._decider.settings
        outcomes = decision.outcomes
        labels = _labels_of(request)
        plan = None
        if namespace_seen is not None and labels is not None:
            coverage = view.policies.coverage_for(namespace_seen, settings.own_namespace)
            plan = coverage.group.plan(labels)
            if plan and decision.policies:
                outcomes = tuple(shown_outcomes(coverage, plan, request.pod, outcomes))
        notes = [of_class.note] if of_class.note else []
        without_fs_group = (_NEEDS_FS_GROUP, Reason.NOT_APPLICABLE)
        if (
            namespace_seen is not None
            and namespace_seen.fixed_selinux_level
            and without_fs_group in [(each.remedy, each.reason) for each in outcomes]
            and facts_of(request.pod).has_persistent_volume
        ):
            notes.append(_SCC_NOTE)
        is_known = self._namespace_labels is not None or self._view.contains_namespace(namespace)
        if not is_known:
            notes.append(self._namespace_note(namespace, assumed=namespace_seen is not None))
        return PodDecision(
            namespace,
            decision,
            outcomes,
            labels,
            plan.policies if plan else (),
            view.policies,
            settings,
            namespace_seen,
            is_known,
            of_class.spec,
            tuple(notes),
        )

    def _namespace_note(self, name: str, *, assumed: bool) -> str:
        """Return the sentence for a namespace that the view does not contain.

        `assumed` says whether the view then assumes a namespace without labels.
        """
        if assumed:
            return (
                f"namespace {name!r} is not in the manifests: it is treated as one without labels"
            )
        why = "is not in the cluster" if self._namespaces_read else "could not be read"
        return f"namespace {name!r} {why}, so no policy can be chosen for its pods"


def _labels_of(request: Request[Any]) -> Labels | None:
    """Return the labels of the pod of a request. Return None if the pod cannot be decoded."""
    try:
        return request.pod.labels or {}
    except DECODE_ERRORS:
        return None
