"""Running pods that a policy covers and that do not have its remedies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from msgspec import structs

from webhook.core.admission.apply_plan import parse_applied
from webhook.core.constants import ANNOTATION_APPLIED
from webhook.core.reasons import NO_DECISION, Outcome
from webhook.inspect.cluster_flags import podsettle
from webhook.inspect.findings import Area, Certainty, Finding, Looked
from webhook.inspect.installation import Called, WebhookCall
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.objects import LivePod
from webhook.inspect.scan.symptoms.base import Case, ScanFacts, Symptom

ID = "not-settled"
ADVICE = (
    "A policy changes a pod only when the pod is created. Replace running pods with the command of "
    "their workload. The pods of a Job, a TaskRun or a CI step are settled the next time."
)
_NOT_CALLED_ADVICE = "` says how to make the API server call podsettle."
DECISIONS = "decisions"
"""The name of the area that says on how many pods podsettle made no decision."""
SYMPTOM = Symptom(
    id=ID,
    title="Pods that a policy covers and that are not settled",
    areas=("pods", "namespaces", "settlepolicies", "nodes", "runtimeclasses"),
    find=lambda _case: iter(()),  # UnsettledPods judges: it also counts its failures.
    page="docs/operations.md#pods-are-not-settled",
)
MAX_SHOWN_CHARACTERS = 200
"""The beginning of a text that a finding shows, because people read it."""
_LIVING_PHASES = ("Pending", "Running")


class UnsettledPods:
    """The search for pods that would be changed if they were created today."""

    def __init__(self, cluster: KnownCluster, *, doubtful: bool) -> None:
        """Prepare the search.

        `doubtful` says that the nodes or the RuntimeClasses could not be read. Remedies that depend
        on them are then only likely to be needed.
        """
        self._cluster = cluster
        settings = replace(cluster.settings, linger_image=None)
        self._without_image = replace(cluster, settings=settings)
        self._certainty = Certainty.LIKELY if doubtful else Certainty.CERTAIN
        self._failures: Counter[str] = Counter()
        self._first_failure = ""

    def judge(self, pod: LivePod) -> Iterator[Finding]:
        """Yield a finding if the webhook would change the pod, and has not done so."""
        metadata, cluster = pod.metadata, self._cluster
        if pod.status.phase not in _LIVING_PHASES or metadata.deletion_timestamp is not None:
            return
        # A new pod may land on another node, and gets the overhead that its class has today.
        spec = structs.replace(pod.spec, node_name=None, overhead=None)
        created = structs.replace(pod, spec=spec)
        outcomes = cluster.decide(created, metadata.namespace).outcomes
        for outcome in outcomes:
            if outcome.reason in NO_DECISION:
                self._failures[outcome.reason] += 1
                sentence = outcome.sentence[:MAX_SHOWN_CHARACTERS]
                self._first_failure = self._first_failure or f"{pod.title}: {sentence}"
        changed = [outcome for outcome in outcomes if outcome.changed]
        if not changed:
            return
        pairs = dict.fromkeys((outcome.policy, outcome.remedy) for outcome in changed)
        # The annotation may be a copy or forged. Or another webhook has added a container since.
        applied = set(parse_applied(metadata.annotations))
        claimed = [f"{policy}/{remedy}" for policy, remedy in pairs if (policy, remedy) in applied]
        call, namespace = WebhookCall(Called.YES), cluster.view.namespace(metadata.namespace)
        if cluster.calls is not None and namespace is not None:
            call = cluster.calls.call_for(namespace, pod.labels or {})
        certainty = self._certainty
        if call.called is Called.UNKNOWN or claimed:
            certainty = Certainty.LIKELY
        elif certainty is Certainty.CERTAIN and cluster.why_image_is_assumed:
            without = self._without_image.decide(created, metadata.namespace)
            if not any(outcome.changed for outcome in without.outcomes):
                certainty = Certainty.LIKELY
        annotation = (metadata.annotations or {}).get(ANNOTATION_APPLIED, "")
        case, created_at = Case(pod, ScanFacts(), SYMPTOM), metadata.creation_timestamp
        field = f"metadata.annotations[{ANNOTATION_APPLIED}]"
        value = annotation[:MAX_SHOWN_CHARACTERS] or "absent"
        sentence = f"{self._state(pod, changed, claimed)}; {_promise(call, changed)}"
        evidence, advice = [case.evidence(field, value, created_at)], self._advice(pod, call)
        yield case.finding(certainty, sentence, evidence, created_at, advice=advice)

    @property
    def areas(self) -> list[Area]:
        """The pods on which podsettle made no decision, as an area, if there are any."""
        counts = ", ".join(f"{reason} for {count}" for reason, count in self._failures.items())
        why = f"podsettle made no decision: {counts}; the first is {self._first_failure}"
        return [Area(DECISIONS, Looked.PARTLY, why)] if counts else []

    def _state(self, pod: LivePod, changed: Sequence[Outcome], claimed: Sequence[str]) -> str:
        """Return what the pod has, or how old it is beside its policies, in a clause."""
        if claimed:
            return (
                f"the annotations say that podsettle applied {', '.join(claimed)}, but the pod "
                "does not have it everywhere"
            )
        policies = tuple(dict.fromkeys(outcome.policy for outcome in changed))
        created = pod.metadata.creation_timestamp
        clause = age_clause(created, policies, self._cluster.created)
        return clause or f"policy {' and '.join(policies)} covers the pod, which it has not changed"

    def _advice(self, pod: LivePod, call: WebhookCall) -> str:
        flags = self._cluster.flags
        if call.called is Called.NO:
            return f"`{flags.command(podsettle('doctor'))}{_NOT_CALLED_ADVICE}"
        workload = pod.metadata.workload
        if command := flags.command(workload.rollout_command):
            return command
        if not pod.metadata.owner_references:
            return "Delete the pod and create it again."
        owner = "the same owner" if workload.kind == "Pod" else workload.title
        return f"The next pod of {owner} is settled when it is created."


def age_clause(
    created: datetime | None, policies: Collection[str], times: Mapping[str, datetime]
) -> str:
    """Return whether policies existed when a pod was created. Empty if an age is not known.

    `times` are the times at which policies were created, by name. The API server stores whole
    seconds, so the order of two objects of one second is not known.
    """
    if created is None or not policies or any(policy not in times for policy in policies):
        return ""
    groups: dict[str, list[str]] = {}
    for policy in policies:
        relation = "was created in the same second as"
        if times[policy] != created:
            relation = "is younger than" if times[policy] < created else "is older than"
        groups.setdefault(relation, []).append(policy)
    parts = (f"{relation} policy {', '.join(names)}" for relation, names in groups.items())
    clause = f"the pod {' and '.join(parts)}"
    if "is younger than" not in groups:
        return clause
    why = "podsettle was not called, or the policy has been changed since"
    return f"missed: {clause}; {why}"


def advice_for(findings: Sequence[Finding]) -> str:
    """Return what to do about pods that are not settled. Empty without findings."""
    advice = {finding.advice for finding in findings}
    if len(advice) == 1 and (only := advice.pop()).endswith(_NOT_CALLED_ADVICE):
        return only
    return ADVICE if findings else ""


def _promise(call: WebhookCall, changed: Sequence[Outcome]) -> str:
    """Return what a new pod would get, in a clause."""
    if call.called is Called.NO:
        return f"a new pod would get nothing, because podsettle is not called: {call.why}"
    would = "; ".join(dict.fromkeys(f"{o.remedy}: {o.sentence}" for o in changed))
    if call.called is Called.UNKNOWN:
        return f"if podsettle is called (not known: {call.why}), a new pod would get {would}"
    return f"a new pod would get {would}"
