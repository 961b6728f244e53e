"""Running pods that a policy covers and that do not have its remedies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decider import Decider, OperatorSettings
from webhook.core.admission.review import GroupVersionResource, Request
from webhook.core.cluster.view import ClusterView
from webhook.core.constants import ANNOTATION_APPLIED
from webhook.core.pod import Pod
from webhook.core.policy.coverage import PolicySet
from webhook.core.reasons import NO_DECISION, Outcome, Reason
from webhook.inspect.cluster_flags import ClusterFlags, podsettle
from webhook.inspect.findings import Area, Certainty, Evidence, Finding, Looked
from webhook.inspect.objects import LivePod
from webhook.inspect.pod_and_policy_ages import compare_ages
from webhook.inspect.scan.symptoms.base import make_finding
from webhook.inspect.scan.workload import workload_of
from webhook.inspect.webhook_calls import Called, WebhookCall, WebhookCalls

ID = "not-settled"
TITLE = "Pods that a policy covers and that are not settled"
PAGE = "docs/operations.md#pods-are-not-settled"
ADVICE = (
    "A policy changes a pod only when the pod is created. Replace running pods with the command of "
    "their workload. The pods of a Job, a TaskRun or a CI step are settled the next time."
)
_NOT_CALLED_ADVICE = "`{doctor}` says how to make the API server call podsettle."
DECISIONS = "decisions"
"""The name of the area that says on how many pods podsettle made no decision."""
AREAS = ("pods", "namespaces", "settlepolicies", "nodes", "runtimeclasses")
_MAX_APPLIED_CHARACTERS = 4_096
"""The beginning of ANNOTATION_APPLIED that is read. podsettle writes at most 2 KiB."""
_MAX_SHOWN_CHARACTERS = 200
"""The beginning of the annotation that a finding shows, because people read it."""
_LIVING_PHASES = ("Pending", "Running")
_PODS = GroupVersionResource("", "v1", "pods")


class UnsettledPods:
    """The search for pods that would be changed if they were created today."""

    def __init__(
        self,
        view: ClusterView,
        policies: PolicySet,
        settings: OperatorSettings,
        created: Mapping[str, datetime],
        calls: WebhookCalls | None,
        *,
        doubtful: bool,
        assumes_image: bool,
        flags: ClusterFlags,
    ) -> None:
        """Prepare the search. `created` has the time of creation of each policy, by its name.

        `calls` is None if there is no API server: then it is assumed to call podsettle.

        `doubtful` says that the nodes or the RuntimeClasses could not be read. Remedies that depend
        on them are then only likely to be needed. `assumes_image` says that the image of the helper
        in `settings` is an assumption. `flags` are those of printed commands.
        """
        self._flags = flags
        self._not_called_advice = _NOT_CALLED_ADVICE.format(
            doctor=flags.command(podsettle("doctor"))
        )
        self._view = view
        self._policies = policies
        # Each has a cache of its own, which would be cleared at each change of the helper's image.
        self._decider = Decider(settings, DecisionCache())
        self._decider_without_image = (
            Decider(replace(settings, linger_image=None), DecisionCache())
            if assumes_image
            else None
        )
        self._created = created
        self._calls = calls
        self._certainty = Certainty.LIKELY if doubtful else Certainty.CERTAIN
        self._failures: dict[Reason, int] = {}
        self._first_failure = ""

    def judge(self, pod: LivePod) -> Iterator[Finding]:
        """Yield a finding if the webhook would change the pod, and has not done so."""
        metadata = pod.metadata
        if pod.status.phase not in _LIVING_PHASES:
            return
        request = Request(
            uid="",
            resource=_PODS,
            namespace=metadata.namespace,
            operation="CREATE",
            object=pod.before_scheduling(),
        )
        outcomes = self._outcomes(request, self._decider)
        self._count_failure(pod, outcomes)
        changed = [outcome for outcome in outcomes if outcome.changed]
        if not changed:
            return
        certainty = self._certainty
        if self._decider_without_image is not None and certainty is Certainty.CERTAIN:
            without = self._outcomes(request, self._decider_without_image)
            is_certain = any(outcome.changed for outcome in without)
            certainty = Certainty.CERTAIN if is_certain else Certainty.LIKELY
        policies = tuple(dict.fromkeys(outcome.policy for outcome in changed))
        workload = workload_of(metadata)
        call = self._call_for(request.pod, metadata.namespace)
        applied = (metadata.annotations or {}).get(ANNOTATION_APPLIED, "")[:_MAX_APPLIED_CHARACTERS]
        claimed = _claimed(applied, changed)
        if certainty is Certainty.CERTAIN and (call.called is Called.UNKNOWN or claimed):
            certainty = Certainty.LIKELY
        created = metadata.creation_timestamp
        evidence = (
            Evidence(
                pod.title,
                f"metadata.annotations[{ANNOTATION_APPLIED}]",
                applied[:_MAX_SHOWN_CHARACTERS] or "absent",
                created,
            ),
        )
        state = (
            f"the annotations say that podsettle applied {', '.join(claimed)}, but the pod does "
            "not have it everywhere"
            if claimed
            else self._age_clause(created, policies)
        )
        next_pod = (
            f"The next pod of {workload.title} is settled when it is created."
            if workload.kind != "Pod"
            else "Delete the pod and create it again."
        )
        advice = self._flags.command(workload.rollout_command) or next_pod
        yield make_finding(
            ID,
            pod,
            certainty,
            f"{state}; {_promise(call, changed)}",
            evidence,
            created,
            advice=self._not_called_advice if call.called is Called.NO else advice,
        )

    def _call_for(self, pod: Pod, namespace: str) -> WebhookCall:
        """Return whether the API server calls podsettle for a new pod."""
        known = self._view.namespace(namespace)
        if self._calls is None or known is None:
            return WebhookCall(Called.YES)
        return self._calls.call_for(known, pod.labels or {})

    @property
    def area(self) -> Area | None:
        """The pods on which podsettle made no decision. None if there are none."""
        if not self._failures:
            return None
        counts = ", ".join(f"{reason} for {count}" for reason, count in self._failures.items())
        why = f"podsettle made no decision: {counts}; the first is {self._first_failure}"
        return Area(DECISIONS, Looked.PARTLY, why)

    def _count_failure(self, pod: LivePod, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.reason in NO_DECISION:
                count = self._failures.get(outcome.reason, 0)
                self._failures[outcome.reason] = count + 1
                sentence = outcome.sentence[:_MAX_SHOWN_CHARACTERS]
                self._first_failure = self._first_failure or f"{pod.title}: {sentence}"

    def _outcomes(self, request: Request[Pod], decider: Decider) -> tuple[Outcome, ...]:
        """Return what the webhook would decide on a new pod.

        Images are not looked up, because registries would be asked about every pod.
        """
        rendered, _ = decider.decide_safely(request, self._policies, self._view)
        return rendered.decision.outcomes

    def _age_clause(self, created: datetime | None, policies: tuple[str, ...]) -> str:
        """Return whether the pod is older than the policies that would change it."""
        compared = compare_ages(created, policies, self._created)
        if compared is None:
            return f"policy {' and '.join(policies)} covers the pod, which it has not changed"
        if compared.missed:
            return (
                f"missed: {compared.clause}; podsettle was not called, or the policy has been "
                "changed since"
            )
        return compared.clause


def _claimed(applied: str, changed: Iterable[Outcome]) -> tuple[str, ...]:
    """Return the remedies to be applied that an annotation says a pod has, as `policy/remedy`.

    The annotation may have been copied or forged. Or another webhook has added a container since.
    """
    named = set(applied.split(","))
    return tuple(
        pair
        for pair in dict.fromkeys(f"{outcome.policy}/{outcome.remedy}" for outcome in changed)
        if pair in named
    )


def advice_for(findings: Sequence[Finding]) -> str:
    """Return what to do about pods that are not settled. Empty without findings."""
    advice = {finding.advice for finding in findings}
    if len(advice) == 1 and (only := advice.pop()).endswith(_NOT_CALLED_ADVICE.partition("}")[2]):
        return only
    return ADVICE if findings else ""


def _promise(call: WebhookCall, changed: Iterable[Outcome]) -> str:
    """Return what a new pod would get, in a clause."""
    if call.called is Called.NO:
        return (
            "a new pod would get nothing, because the API server does not call podsettle for it: "
            f"{call.why}"
        )
    would = "; ".join(dict.fromkeys(f"{o.remedy}: {o.sentence}" for o in changed))
    if call.called is Called.UNKNOWN:
        return (
            "whether the API server calls podsettle for a new pod is not known "
            f"({call.why}); if it does, the pod would get {would}"
        )
    return f"a new pod would get {would}"
