"""The explanation of a pod or of a workload: its record, its next pod, and what a scan finds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from msgspec.structs import asdict

from webhook.core.constants import ANNOTATION_SKIP
from webhook.core.pod import Pod, PodSpec
from webhook.core.preview.model import PodPreview
from webhook.core.preview.preview import Preview, preview_all, render
from webhook.core.reasons import NO_DECISION, NOT_EVALUATED, Reason
from webhook.core.remedies import REMEDIES
from webhook.core.types import Json
from webhook.inspect.cluster_flags import podsettle
from webhook.inspect.explain.advice import explain_reason
from webhook.inspect.explain.model import (
    AppliedRemedy,
    ContainerExplanation,
    Explanation,
    FoundSymptom,
    LeftOut,
    NodeNeed,
    NotRead,
    PodGroup,
)
from webhook.inspect.explain.read import Source
from webhook.inspect.explain.record import UNTOUCHED, Record
from webhook.inspect.explain.target import POD, ObjectTarget
from webhook.inspect.findings import Area, Finding, Looked
from webhook.inspect.installation import CONFIGURATIONS_RIGHT
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.next_pod import next_pod_document
from webhook.inspect.objects import LivePod
from webhook.inspect.scan import unsettled
from webhook.inspect.scan.collect import scan
from webhook.inspect.scan.model import ScanReport
from webhook.inspect.scan.resources import ALL, PODS
from webhook.inspect.scan.symptoms import SYMPTOMS
from webhook.inspect.webhook_calls import Called, WebhookCall

_READ = Looked.LOOKED_AT
_MAX_EXAMPLES = 3
"""The number of pods that a group names, and of findings of a workload. People read them."""
_MAX_GROUPS = 20
"""The maximum number of groups of pods. podsettle usually did the same to pods of one workload."""
_IN_FORCE = frozenset({Reason.APPLIED, Reason.ALREADY_SETTLED})
"""The reasons of a remedy that a pod has, or would get today."""
_ACTS = _IN_FORCE | {Reason.UNSTABLE_SELINUX_LEVEL, Reason.WOULD_APPLY}
"""The reasons for which it matters whether the API server calls podsettle."""
_ASSUMPTIONS = {
    "runtimeclasses": "; today's decision treats each one as missing",
    "nodes": "; today's decision treats remedies with `when: NodesNeedIt` as needed",
}
"""What a decision assumes if the objects of a kind could not be read."""


async def explain(
    source: Source, target: ObjectTarget, namespace: str | None, cluster: KnownCluster
) -> Explanation:
    """Return the explanation of a target. It may be in any namespace if `namespace` is None.

    Raises NotFoundError, one of DECODE_ERRORS for a malformed pod, and of an API server ApiError
    and Unreachable.
    """
    document, namespace = await source.find(target, namespace, cluster)
    explainer = _Explainer(target, namespace, cluster)
    report = await scan(
        source.reader,
        cluster,
        namespace,
        templates=source.templates,
        only=explainer.counted(source.pods_of(target, document, namespace)),
        on_finding=explainer.keep,
    )
    return explainer.explanation(document, report)


class _Explainer:
    """The explanation of one object. What it keeps does not grow with the pods."""

    def __init__(self, target: ObjectTarget, namespace: str, cluster: KnownCluster) -> None:
        self._target, self._namespace, self._cluster = target, namespace, cluster
        self._pod: LivePod | None = None
        self._record = Record(Pod(PodSpec()))
        self._groups: dict[str, PodGroup] = {}
        self._sentences: dict[str, list[str]] = {}

    async def counted(self, pods: AsyncIterator[LivePod]) -> AsyncIterator[LivePod]:
        """Yield the pods, and count them by what podsettle did to them."""
        async for pod in pods:
            record = Record(pod)
            if self._target.kind is POD:
                self._pod, self._record = pod, record
            state = record.doubt or " ".join(record.summary.split()) or record.sentence
            if state not in self._groups and len(self._groups) >= _MAX_GROUPS:
                state = "podsettle did other things to other pods."
            group = self._groups.setdefault(state, PodGroup(state=state, count=0, examples=[]))
            group.count += 1
            group.examples = [*group.examples, pod.metadata.name][:_MAX_EXAMPLES]
            yield pod

    def keep(self, finding: Finding) -> None:
        """Keep the sentence of a finding: all of a pod, and some of the pods of a workload."""
        kept = self._sentences.setdefault(finding.symptom, [])
        if self._pod or len(kept) < _MAX_EXAMPLES:
            kept.append(finding.sentence)

    def explanation(self, document: Json, report: ScanReport) -> Explanation:
        """Return the explanation of an object, whose pods were counted and scanned."""
        self._decide(document)
        record, evaluated = self._record, {*self._record.applied}
        for each in self._outcomes:
            if each.policy and each.reason not in NOT_EVALUATED:
                evaluated.add((each.policy, each.remedy))
        needs = [each for each in report.needs if (each.policy, each.remedy) in evaluated]
        groups = sorted(self._groups.values(), key=lambda group: -group.count)
        return Explanation(
            kind=self._target.kind.kind,
            namespace=self._namespace,
            name=self._target.name,
            verdict=self._verdict(),
            summary=record.summary,
            applied=[self._applied(policy, remedy) for policy, remedy in record.applied],
            left_out=list(self._left_out()),
            containers=[
                ContainerExplanation(name=each.name, init=init, changes=record.changes(each))
                for init, each in record.containers
            ],
            pods=[] if self._pod else groups,
            symptoms=[
                FoundSymptom(
                    symptom=each.id,
                    certainty=each.findings[0].certainty,
                    pods=each.pods,
                    sentences=self._sentences[each.id],
                    # That of the finding has the command that restarts the workload.
                    advice=each.advice if each.defect else each.findings[0].advice,
                    policy=each.policy,
                    page=each.page,
                )
                for each in report.symptoms
                if each.findings
            ],
            notes=[*record.notes(), *self._notes(report.areas)],
            called=self._called.value if self._called else None,
            today=self._preview,
            nodes=[NodeNeed(**asdict(each)) for each in needs],
            node=self._node({remedy for _, remedy in evaluated}),
            unknown=list(self._not_read(report.areas)),
            advice=list(self._advice()),
        )

    def _decide(self, document: Json) -> None:
        """Decide on the next pod, and on whether the API server calls podsettle for it."""
        self._preview: PodPreview | None = None
        self._call: WebhookCall | None = None
        cluster, view = self._cluster, self._cluster.view
        if self._pod:
            document = next_pod_document(document, view.runtime_classes)
        if cluster.can_decide(self._namespace):
            previews = preview_all(
                document, view.policies, view, cluster.settings, namespace=self._namespace
            )
            rendered = (render(each) for each in previews if isinstance(each, Preview))
            self._preview = next(rendered, None)
        self._outcomes = self._preview.outcomes if self._preview else []
        self._changing = list(dict.fromkeys(x.policy for x in self._outcomes if x.changed))
        known, acts = view.namespace(self._namespace), {x.reason for x in self._outcomes} & _ACTS
        if self._preview and acts and known is not None and cluster.calls is not None:
            # A pod with such an outcome was decoded, so its labels are texts.
            labels = self._preview.before["metadata"].get("labels") or {}
            self._call = cluster.calls.call_for(known, labels)
        self._called = self._call.called if self._call else None

    def _verdict(self) -> str:
        sentence, subject, new = self._record.sentence, "It", "a new pod like this one"
        if self._pod is None:
            sentence, subject, new = "", "podsettle", "the next pod of this workload"
        elif sentence != UNTOUCHED:
            lacks = unsettled.ID in self._sentences and not self._record.unshown
            return sentence + (" A policy asks for more than the pod has." if lacks else "")
        failed = next((each for each in self._outcomes if each.reason in NO_DECISION), None)
        if failed or self._preview is None:
            why = f": {failed.reason}: {failed.message}" if failed else "."
            return f"{sentence} What podsettle would do to {new} is not known{why}".strip()
        end = "."
        if self._called is Called.NO:
            end = ", because the API server does not call podsettle for it."
        elif self._called is Called.UNKNOWN and self._changing:
            end = " if the API server calls podsettle for it."
        elif not self._changing:
            audits = [each for each in self._outcomes if each.reason is Reason.WOULD_APPLY]
            names = ", ".join(dict.fromkeys(each.policy for each in audits))
            end = f", because only `action: Audit` covers it: {names}." if audits else "."
        would = "would" if self._changing and self._called is not Called.NO else "would not"
        return f"{sentence} {subject} {would} change {new}{end}".strip()

    def _applied(self, policy: str, remedy: str) -> AppliedRemedy:
        return AppliedRemedy(
            remedy=remedy,
            policy=policy,
            purpose=REMEDIES[remedy].description if remedy in REMEDIES else "",
            fields=self._record.fields(remedy),
            today=self._why_not(policy, remedy) if self._preview else "",
        )

    def _why_not(self, policy: str, remedy: str) -> str:
        """Return why a policy would not apply a remedy today. Empty if it would."""
        of_remedy = [each for each in self._outcomes if each.remedy == remedy]
        setters = dict.fromkeys(x.policy for x in of_remedy if x.changed or x.reason in _IN_FORCE)
        if setters and self._call and self._called is Called.NO:
            return f"The API server does not call podsettle: {self._call.why}."
        if setters:
            names = ", ".join(setters)
            return "" if policy in setters else f"Policy {names} sets this remedy instead."
        for each in of_remedy or (each for each in self._outcomes if not each.remedy):
            return f"{each.reason}: {each.message}"
        return "No policy that covers the pod sets this remedy."

    def _left_out(self) -> Iterator[LeftOut]:
        """Yield what the pod lacks. If today's decision has the same code, its sentence counts."""
        for left in self._record.skipped:
            reason = Reason.of(left.reason)
            meaning = reason.meaning if reason else "Another version of podsettle."
            same = (x for x in self._outcomes if (x.container, x.remedy, x.reason) == left)
            yield LeftOut(**left._asdict(), sentence=next((x.message for x in same), meaning))

    def _notes(self, areas: Sequence[Area]) -> Iterator[str]:
        if self._call and self._called is Called.NO:
            doctor = self._cluster.flags.command(podsettle("doctor"))
            yield (
                f"The API server does not call podsettle for such a pod: {self._call.why}. "
                f"`{doctor}` checks the installation. Below is what it would do."
            )
        elif self._call and self._called is Called.UNKNOWN:
            yield f"Whether the API server calls podsettle is not known: {self._call.why}."
        elif self._pod and self._record.is_empty and unsettled.ID not in self._sentences:
            created = self._pod.metadata.creation_timestamp
            clause = unsettled.age_clause(created, self._changing, self._cluster.created)
            yield from [f"{clause[0].upper()}{clause[1:]}."] if clause else []
        read = any(x.name == PODS.name and x.looked is _READ for x in areas)
        if read and not self._groups:
            yield "No pod of this workload was found."

    def _node(self, remedies: set[str]) -> str:
        """Return whether the node of the pod, if it is known, has the defects of remedies."""
        nodes, name = self._cluster.view.nodes, self._pod.spec.node_name if self._pod else None
        return " ".join(
            f"The pod's node {node.name} ({node.software_of(defect)}) is "
            f"{node.status_for(defect)}: {defect.title} ({defect.id})."
            for node in nodes.all
            if node.name == name
            for defect in nodes.defects
            if not remedies.isdisjoint(defect.remedies)
        )

    def _not_read(self, areas: Sequence[Area]) -> Iterator[NotRead]:
        """Yield what could not be read, with what is assumed instead, and what may be missing."""
        rights = {each.name: each.right(self._namespace) for each in ALL}
        rights |= {each.resource: each.right for each in self._cluster.unread}
        rights |= {CONFIGURATIONS_RIGHT.resource: CONFIGURATIONS_RIGHT}
        kept = {each.name: each.kept for each in ALL}
        for area in areas:
            if area.looked is _READ or (area.why and area.why == kept.get(area.name)):
                continue
            right = rights[area.name] if area.right else None
            why = f"it needs the right to {right}" if right else area.why
            why += _ASSUMPTIONS.get(area.name, "") if self._preview else ""
            judged = [each.id for each in SYMPTOMS if area.name in each.areas]
            symptoms = ", ".join(each for each in judged if not self._sentences.get(each))
            yield NotRead(
                what=area.name,
                why=f"{why}; symptoms that may be missing: {symptoms}" if symptoms else why,
                right=str(right or ""),
                command=self._cluster.flags.command(right.command) if right else "",
            )

    def _advice(self) -> Iterator[str]:
        for code in dict.fromkeys(each.reason for each in self._record.skipped):
            if (reason := Reason.of(code)) is not None:
                yield f"{reason}: {explain_reason(reason).advice}"
        if self._record.applied:
            names = ",".join(self._record.remedies)
            yield (
                f"To do without these remedies, set the annotation `{ANNOTATION_SKIP}: {names}` in "
                "the pod template."
            )
