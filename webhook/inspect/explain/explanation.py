"""The explanation of a pod or of a workload: its record, its next pod, and what a scan finds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec

from webhook.cluster.rights import NotAllowedError
from webhook.core.constants import ANNOTATION_SKIP
from webhook.core.pod import Pod, PodSpec
from webhook.core.preview.document import Document
from webhook.core.preview.model import PodPreview
from webhook.core.preview.preview import Preview, preview_all, render
from webhook.core.printable import list_first
from webhook.core.reasons import NO_DECISION, NOT_EVALUATED, Reason
from webhook.core.remedies import REMEDIES
from webhook.core.types import Json
from webhook.inspect.cluster_flags import podsettle
from webhook.inspect.explain import report
from webhook.inspect.explain.record import UNTOUCHED, Record
from webhook.inspect.explain.target import ObjectTarget, explain_word
from webhook.inspect.findings import MAX_LISTED, Area, Finding, Looked
from webhook.inspect.installation import CONFIGURATIONS_RIGHT, Called
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.next_pod import next_pod_document
from webhook.inspect.object_readers import ALL, PODS, DumpReader, ObjectReader, decode_object
from webhook.inspect.objects import LivePod
from webhook.inspect.scan import unsettled
from webhook.inspect.scan.collect import scan
from webhook.inspect.scan.model import POSSIBLE, ScanReport
from webhook.inspect.scan.report_parts import status_on
from webhook.inspect.scan.symptoms import SYMPTOMS

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


class NotFoundError(Exception):
    """Raised if the target does not exist or cannot be read. The text says why."""


async def explain(
    reader: ObjectReader, target: ObjectTarget, namespace: str | None, cluster: KnownCluster
) -> report.Explanation:
    """Return the explanation of a target. It may be in any namespace if `namespace` is None.

    Raises NotFoundError, one of DECODE_ERRORS for a malformed pod, and of an API server ApiError
    and Unreachable.
    """
    document, namespace = await _find(reader, target, namespace, cluster)
    explainer = _Explainer(target, namespace, cluster)
    scanned = await scan(
        reader,
        cluster,
        namespace,
        only=explainer.counted(_pods_of(reader, target, document, namespace)),
        on_finding=explainer.keep,
    )
    return explainer.explanation(document, scanned)


class _Explainer:
    """The explanation of one object. What it keeps does not grow with the pods."""

    def __init__(self, target: ObjectTarget, namespace: str, cluster: KnownCluster) -> None:
        self._target, self._namespace, self._cluster = target, namespace, cluster
        self._pod: LivePod | None = None
        self._record = Record(Pod(PodSpec()))
        self._groups: dict[str, report.PodGroup] = {}
        self._sentences: dict[str, list[str]] = {}

    async def counted(self, pods: AsyncIterator[LivePod]) -> AsyncIterator[LivePod]:
        """Yield the pods, and count them by what podsettle did to them."""
        async for pod in pods:
            record = Record(pod)
            if self._target.kind == "Pod":
                self._pod, self._record = pod, record
            state = record.doubt or " ".join(record.summary.split()) or record.sentence
            if state not in self._groups and len(self._groups) >= _MAX_GROUPS:
                state = "podsettle did other things to other pods."
            new = report.PodGroup(state=state, count=0, examples=[])
            group = self._groups.setdefault(state, new)
            group.count += 1
            group.examples = [*group.examples, pod.metadata.name][:_MAX_EXAMPLES]
            yield pod

    def keep(self, finding: Finding) -> None:
        """Keep the sentence of a finding: all of a pod, and some of the pods of a workload."""
        kept = self._sentences.setdefault(finding.symptom, [])
        if self._pod or len(kept) < _MAX_EXAMPLES:
            kept.append(finding.sentence)

    def explanation(self, document: Json, scanned: ScanReport) -> report.Explanation:
        """Return the explanation of an object, whose pods were counted and scanned."""
        self._decide(document)
        record, outcomes = self._record, (each for each in self._outcomes if each.policy)
        judged = ((x.policy, x.remedy) for x in outcomes if x.reason not in NOT_EVALUATED)
        evaluated = {*record.applied, *judged}
        needs = [each for each in scanned.needs if (each.policy, each.remedy) in evaluated]
        groups = sorted(self._groups.values(), key=lambda group: -group.count)
        return report.Explanation(
            kind=self._target.kind,
            namespace=self._namespace,
            name=self._target.name,
            verdict=self._verdict(),
            summary=record.summary,
            applied=[
                report.AppliedRemedy(
                    remedy=remedy,
                    policy=policy,
                    purpose=REMEDIES[remedy].description if remedy in REMEDIES else "",
                    fields=record.fields(remedy),
                    today=self._why_not(policy, remedy) if self._preview else "",
                )
                for policy, remedy in record.applied
            ],
            left_out=list(self._left_out()),
            containers=[
                report.ContainerExplanation(name=each.name, init=init, changes=record.changes(each))
                for init, each in record.containers
            ],
            pods=[] if self._pod else groups,
            symptoms=[
                report.FoundSymptom(
                    symptom=each.id,
                    certainty=each.findings[0].certainty,
                    pods=each.pods,
                    sentences=self._sentences[each.id],
                    # That of the finding has the command that restarts the workload.
                    advice=each.advice if each.defect else each.findings[0].advice,
                    policy=each.policy,
                    page=each.page,
                )
                for each in scanned.symptoms
                if each.findings
            ],
            notes=[*record.notes(), *self._notes(scanned.areas)],
            called=self._called,
            today=self._preview,
            nodes=needs,
            node=" ".join(self._node({remedy for _, remedy in evaluated})),
            unknown=list(self._not_read(scanned.areas)),
            advice=list(self._advice()),
        )

    def _decide(self, document: Json) -> None:
        """Decide on the next pod, and on whether the API server calls podsettle for it."""
        self._preview: PodPreview | None = None
        self._called: Called | None = None
        self._why = ""
        cluster, view = self._cluster, self._cluster.view
        if self._pod:
            document = next_pod_document(document, view.runtime_classes)
        known = view.namespace(self._namespace)
        if cluster.has_read("settlepolicies") and (known or cluster.has_read("namespaces")):
            previews = preview_all(
                Document(document), view, cluster.settings, namespace=self._namespace
            )
            rendered = (render(each) for each in previews if isinstance(each, Preview))
            self._preview = next(rendered, None)
        self._outcomes = self._preview.outcomes if self._preview else []
        self._changing = list(dict.fromkeys(x.policy for x in self._outcomes if x.changed))
        acts = {x.reason for x in self._outcomes} & _ACTS
        if self._preview and acts and known is not None and cluster.calls is not None:
            # A pod with such an outcome was decoded, so its labels are texts.
            labels = self._preview.before["metadata"].get("labels") or {}
            self._called, self._why = cluster.calls.call_for(known, labels)

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
            if not (self._cluster.is_live or len(self._cluster.view.policies)):
                end = ": the manifests contain no valid policy."
        would = "would" if self._changing and self._called is not Called.NO else "would not"
        return f"{sentence} {subject} {would} change {new}{end}".strip()

    def _why_not(self, policy: str, remedy: str) -> str:
        """Return why a policy would not apply a remedy today. Empty if it would."""
        of_remedy = [each for each in self._outcomes if each.remedy == remedy]
        setters = dict.fromkeys(x.policy for x in of_remedy if x.changed or x.reason in _IN_FORCE)
        if setters and self._called is Called.NO:
            return f"The API server does not call podsettle: {self._why}."
        if setters:
            names = ", ".join(setters)
            return "" if policy in setters else f"Policy {names} sets this remedy instead."
        for each in of_remedy or (each for each in self._outcomes if not each.remedy):
            return f"{each.reason}: {each.message}"
        return "No policy that covers the pod sets this remedy."

    def _left_out(self) -> Iterator[report.LeftOut]:
        """Yield what the pod lacks. If today's decision has the same code, its sentence counts."""
        for left in self._record.skipped:
            reason = Reason.of(left.reason)
            meaning = reason.meaning if reason else "Another version of podsettle."
            same = (x for x in self._outcomes if (x.container, x.remedy, x.reason) == left)
            yield report.LeftOut(
                **left._asdict(), sentence=next((x.message for x in same), meaning)
            )

    def _notes(self, areas: Sequence[Area]) -> Iterator[str]:
        if self._called is Called.NO:
            doctor = self._cluster.flags.command(podsettle("doctor"))
            yield (
                f"The API server does not call podsettle for such a pod: {self._why}. "
                f"`{doctor}` checks the installation. Below is what it would do."
            )
        elif self._called is Called.UNKNOWN:
            yield f"Whether the API server calls podsettle is not known: {self._why}."
        elif self._pod and self._record.is_empty and unsettled.ID not in self._sentences:
            created = self._pod.metadata.creation_timestamp
            clause = unsettled.age_clause(created, self._changing, self._cluster.created)
            yield from [f"{clause[0].upper()}{clause[1:]}."] if clause else []
        read = any(x.name == PODS.name and x.looked is Looked.LOOKED_AT for x in areas)
        if read and not self._groups:
            yield "No pod of this workload was found."

    def _node(self, remedies: set[str]) -> Iterator[str]:
        """Yield whether the node of the pod, if it is known, has each defect of remedies."""
        nodes, name = self._cluster.view.nodes, self._pod.spec.node_name if self._pod else None
        for node in (each for each in nodes.all if each.name == name):
            for defect in (x for x in nodes.defects if not remedies.isdisjoint(x.remedies)):
                status, software = status_on(node, defect), node.software_of(defect)
                if status == POSSIBLE:
                    status = f"possibly affected, because the defect also needs {defect.requires}"
                what = f"{status}: {defect.title} ({defect.id})"
                yield f"The pod's node {node.name} ({software}) is {what}."

    def _not_read(self, areas: Sequence[Area]) -> Iterator[report.NotRead]:
        """Yield what could not be read, with what is assumed instead, and what may be missing."""
        rights = {each.name: each.right(self._namespace) for each in ALL}
        rights |= {each.resource: each.right for each in self._cluster.unread}
        rights |= {CONFIGURATIONS_RIGHT.resource: CONFIGURATIONS_RIGHT}
        kept = {each.name: each.kept for each in ALL}
        for area in areas:
            if area.looked is Looked.LOOKED_AT or (area.why and area.why == kept.get(area.name)):
                continue
            right = rights[area.name] if area.right else None
            why = f"it needs the right to {right}" if right else area.why
            why += _ASSUMPTIONS.get(area.name, "") if self._preview else ""
            judged = [each.id for each in SYMPTOMS if area.name in each.areas]
            symptoms = ", ".join(each for each in judged if not self._sentences.get(each))
            yield report.NotRead(
                what=area.name,
                why=f"{why}; symptoms that may be missing: {symptoms}" if symptoms else why,
                right=str(right or ""),
                command=self._cluster.flags.command(right.command) if right else "",
            )

    def _advice(self) -> Iterator[str]:
        for code in dict.fromkeys(each.reason for each in self._record.skipped):
            if (reason := Reason.of(code)) is not None:
                yield f"{reason}: {explain_word(reason)['advice']}"
        if self._record.applied:
            names = ",".join(self._record.remedies)
            yield (
                f"To do without these remedies, set the annotation `{ANNOTATION_SKIP}: {names}` in "
                "the pod template."
            )


async def _find(
    reader: ObjectReader, target: ObjectTarget, namespace: str | None, cluster: KnownCluster
) -> tuple[Json, str]:
    """Return the object of a target, and its namespace. `namespace` None stands for any.

    Raises NotFoundError, and of an API server ApiError and Unreachable.
    """
    where = f" in namespace {namespace}" if namespace else ""
    if isinstance(reader, DumpReader):
        absent = f"it is not in the manifests: {cluster.title}"
        absent += "; files in subdirectories are not read" * reader.manifests.have_subdirectories
    else:
        where, absent = where or " in all namespaces", "it does not exist"
    kind, group, name, title = target
    try:
        found = await reader.named(group, kind, name, namespace)
    except NotAllowedError as error:
        command = cluster.flags.command(error.right.command)
        raise NotFoundError(f"{title}{where}: {error}; to check: {command}") from None
    in_namespaces: dict[str, Json] = {}
    for each in found:
        own = each["metadata"].get("namespace") or namespace or cluster.namespace
        in_namespaces.setdefault(own, each)
    if not in_namespaces:
        raise NotFoundError(f"{title}{where}: {absent}")
    if len(in_namespaces) > 1:
        names = list_first(sorted(in_namespaces), MAX_LISTED)
        raise NotFoundError(f"{title}: it is in {names}; choose one with -n")
    ((chosen, document),) = in_namespaces.items()
    # A list may omit the kind of its objects.
    return {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind, **document}, chosen


async def _pods_of(
    reader: ObjectReader, target: ObjectTarget, document: Json, namespace: str
) -> AsyncIterator[LivePod]:
    """Yield a pod, or the pods of a workload. Raises one of DECODE_ERRORS for a malformed pod.

    The CronJob controller names a Job after the CronJob and the scheduled time (`getJobName` in
    kubernetes `pkg/controller/cronjob/utils.go`).
    """
    if target.kind == "Pod":
        yield decode_object(msgspec.json.encode(document), msgspec.json.Decoder(LivePod).decode)
        return
    async for each in reader.objects(PODS, namespace):
        kind, name, _, group = each.metadata.workload
        before, _, number = name.rpartition("-")
        if (target.kind, kind) == ("CronJob", "Job") and number.isdecimal():
            kind, name = target.kind, before
        if (kind, name, group) == (target.kind, target.name, target.group):
            yield each
