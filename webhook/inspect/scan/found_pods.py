"""The pods at which a symptom was found, as far as a proposed policy depends on them.

Pods of one template are kept once. So the memory grows with templates, and it has a limit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.rights import NotAllowedError
from webhook.core.constants import (
    ANNOTATION_MIRROR,
    DNS_LABEL_NAME,
    OBJECT_NAME,
    SYSTEM_NAMESPACE_PREFIXES,
)
from webhook.core.decision_input import facts_of
from webhook.core.defects.defect import Defect
from webhook.core.pod import DECODE_ERRORS, Pod, decode_pod
from webhook.core.preview.document import Document
from webhook.core.preview.pods_in_document import Workload, pods_of
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.base import FoundContainers
from webhook.core.types import Json
from webhook.inspect.findings import Finding
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.next_pod import next_pod
from webhook.inspect.object_readers import ObjectReader
from webhook.inspect.objects import WORKLOAD_GROUPS, LivePod, WorkloadName

_MAX_BYTES = 8 * 1024 * 1024
"""The maximum memory for the pods of one symptom. Without their environment, pods take a tenth of
what they take in etcd, so this suits thousands of templates."""
MAX_NAMED_CONTAINERS = 20
"""The maximum number of containers in a policy. Beyond it, the policy selects all of them."""

_MAX_READ = 50
"""The maximum number of workloads that are read, because each takes a request."""
_GROUPS = WORKLOAD_GROUPS | {"ReplicaSet": "apps"}
"""The kinds that are read, with their API groups."""

_KEPT_ALIVE = (
    "postInitSleep keeps their containers alive already. If CRI-O's log on the node has `Failed to "
    "update container state` for them (before CRI-O 1.34), or if their own logs show no failure, "
    "raise `minLifetime` in the policy"
)
_MIRROR = f"{Reason.MIRROR_POD}: {Reason.MIRROR_POD.meaning}"
_RECREATING = frozenset({"CatalogSource", "Jenkins", "KafkaCluster", "NifiCluster"})
"""The kinds of objects whose operators delete a pod that differs from their template, and create it
again, in some releases without end (operator-framework/operator-lifecycle-manager#2986,
jenkinsci/kubernetes-operator#733, adobe/koperator#269, konpyutaika/nifikop#541)."""
_RECREATED = "releases of their operator delete a pod that a webhook has changed, without end"

_CHANGING_KEY = re.compile(
    r"(.*[-_./])?(branch|chart|checksum|commit|date|digest|event|generation|hash|index|number|tag"
    r"|(instance|job|run|build)[-_]id|(jobset|run)[-_]name|ref|rev|revision|sha|timestamp|uid|version"
    r"|active|completed?|done|failed|finished|healthy|initialized|role|leader|master|phase|primary"
    r"|ready|sealed|standby|state|status|succeeded)"
    r"|(batch\.kubernetes\.io/)?job-name|statefulset\.kubernetes\.io/pod-name",
    re.ASCII | re.IGNORECASE,
)
"""The keys of labels that controllers add, such as `pod-template-hash`, that change with a release
or a run, or with what a pod does, as Vault's `vault-active` and CloudNativePG's
`cnpg.io/instanceRole`. Later pods have other values, or none. Words are separated as by `_WORD`."""
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])", re.ASCII)
"""Where a word begins in a key such as `appVersion`."""
_PREFERRED_LABELS = (
    "app.kubernetes.io/name",
    "app",
    "k8s-app",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/managed-by",
)
"""Labels that name what a pod belongs to, the narrowest first."""
_TASK_RUN_LABEL = "tekton.dev/taskRun"
"""The label of all pods of Tekton's TaskRuns. Its value is the name of the TaskRun. The values of
`tekton.dev/pipeline` and `tekton.dev/task` differ from pipeline to pipeline."""
_PIPELINE_RUN_LABEL = "tekton.dev/pipelineRun"
"""The label of all pods of Tekton's PipelineRuns. An affinity assistant has it, but not that of
TaskRuns. Pods that share a workspace must run on the node of its assistant, so a class has to send
it to the same nodes (tektoncd/pipeline `pkg/internal/affinityassistant/transformer.go`)."""
_UNIQUE = re.compile(
    r"(.*[-_.])?[0-9a-f]{16,64}"
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(.*\D)?20\d\d([-._]?)[01]\d\4[0-3]\d(\d{4}|\d{6})?(\D.*)?",
    re.ASCII,
)
"""A value that ends in a hash, or that is a UID or has a date."""
_RANDOM_NAME = re.compile(r"(.*-)?(?=[a-z]*\d)(?=\d*[a-z])[a-z0-9]{20,}", re.ASCII)
"""The name of a container that ends in random characters, as Drone's (drone-runner-kube
`engine/compiler/compiler.go`). The name of an application seldom has as long a word with digits."""
_OF_APPLICATION = re.compile(r"(?![^/]*(kubernetes|k8s)\.io/)[^/]+/", re.ASCII)
"""A key with a prefix that is not one of Kubernetes: all pods of an application are likely to have
it."""
_SHORT_HASH = re.compile(r"(.*[-_.])?(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,15}", re.ASCII)
"""A value that ends in the short hash of a commit. The name of an application can look like one."""
_OF_ONE_RUN = re.compile(r".*-(\d+|[bcdfghjklmnpqrstvwxz0-9]{5})", re.ASCII)
"""A value that ends in a number or in a generated suffix (k8s.io/apimachinery `util/rand`; that of
Jenkins' plugins has all digits)."""


@dataclass(slots=True)
class PodKind:
    """Pods about which a decision is the same."""

    namespace: str
    workload: WorkloadName
    """The workload of the first of them."""
    containers: frozenset[str]
    """The names of the containers with the symptom. Empty if whole pods have it."""
    encoded: bytes
    """The next pod. `read_templates` takes it from the template of its workload."""
    count: int = 1
    has_template: bool = False

    @property
    def pod(self) -> Pod:
        """The next pod."""
        return decode_pod(self.encoded)


class FoundPods:
    """The pods with one symptom. The cluster's policies say which of them are decided alike."""

    def __init__(self, cluster: KnownCluster, defect: Defect, max_bytes: int = _MAX_BYTES) -> None:
        self._cluster, self.defect = cluster, defect
        self._free_bytes = max_bytes
        self.kinds: dict[tuple[object, ...], PodKind] = {}
        """The pods, as far as they could be kept, by what decisions about them depend on."""
        self._containers: tuple[set[str], set[str]] = set(), set()
        self._selectable: set[tuple[str, str | None]] | None = None
        self._in_pipeline = False
        self._sets_class = any(REMEDIES[name].runtime_class for name in defect.remedies)
        self.count = 0
        """The number of pods."""
        self.uncompared = 0
        """The number of pods that are not in `kinds`, because they would take too much memory."""
        self.apart = Counter({_KEPT_ALIVE: 0, _MIRROR: 0, _RECREATED: 0})
        """Why no policy is for some of the pods, and for how many."""
        self.namespaces: set[str] = set()
        """The namespaces of the others, except those of the cluster itself."""

    def add(self, pod: LivePod, findings: Sequence[Finding]) -> None:
        """Add a pod and what was found at it."""
        self.count += 1
        found = [each.container for each in findings]
        namespace, workload = pod.metadata.namespace, pod.metadata.workload
        is_mirror = ANNOTATION_MIRROR in (pod.annotations or {})
        is_recreated = workload.kind in _RECREATING
        if is_mirror or is_recreated or all(each and each.kept_alive for each in found):
            self.apart[_MIRROR if is_mirror else _RECREATED if is_recreated else _KEPT_ALIVE] += 1
            return
        containers = [each for each in found if each is not None and not each.kept_alive]
        is_run = workload.kind == "Job" and _OF_ONE_RUN.fullmatch(workload.name)
        of_run = (f"-{pod.name}", f"-{workload.name}") if is_run else (f"-{pod.name}",)
        for container in containers:
            name, named = container.name, self._containers[0 if container.init else 1]
            if len(named) <= MAX_NAMED_CONTAINERS and DNS_LABEL_NAME.fullmatch(name):
                # Woodpecker names containers after their pods, `kubectl create job` after Jobs.
                is_of_run = f"-{name}".endswith(of_run) or _UNIQUE.fullmatch(name)
                named.add("*" if is_of_run or _RANDOM_NAME.fullmatch(name) else name)
        if not namespace.startswith(SYSTEM_NAMESPACE_PREFIXES):
            self.namespaces.add(namespace)
        created: Pod = pod
        try:
            created = next_pod(pod, self._cluster.view.runtime_classes)
            has_template = workload.kind in _GROUPS
            facts = workload.title if has_template else msgspec.json.encode(facts_of(created))
            names = frozenset(each.name for each in containers)
            key = (namespace, facts, self._cluster.decide(created, namespace).policies, names)
            if (known := self.kinds.get(key)) is not None:
                known.count += 1
            else:
                encoded = msgspec.json.encode(created)
                self._free_bytes -= len(encoded) + len(facts)
                if self._free_bytes >= 0:
                    self.kinds[key] = PodKind(namespace, workload, names, encoded)
                else:
                    self.uncompared += 1
        except DECODE_ERRORS:
            self.uncompared += 1
        self._in_pipeline |= _PIPELINE_RUN_LABEL in (created.labels or {})
        labels = selectable(created, workload)
        self._selectable = labels if self._selectable is None else self._selectable & labels

    @property
    def _of_task_runs(self) -> bool:
        return (_TASK_RUN_LABEL, None) in (self._selectable or ())

    @property
    def containers(self) -> FoundContainers:
        """The containers with the symptom. `*` stands for more than a person would read.

        It also stands for those whose names no later pod has.

        In pods of TaskRuns it stands for all init containers, because Tekton adds them to each pod,
        and all of them end quickly.
        """
        init, regular = (
            ("*",) if "*" in names or len(names) > MAX_NAMED_CONTAINERS else tuple(sorted(names))
            for names in self._containers
        )
        return FoundContainers(("*",) if self._of_task_runs else init, regular)

    @property
    def pod_selector(self) -> dict[str, Any]:
        """A selector that all pods match, and later pods too. Empty if there is none.

        With a class, it leaves out TaskRuns of no PipelineRun if there are others.
        """
        found = self._selectable or set()
        for kind in self.kinds.values():
            if kind.has_template:
                labels = kind.pod.labels or {}
                found = {x for x in found if x[0] in labels and x[1] in (None, labels[x[0]])}
        if self._of_task_runs:
            is_narrow = self._sets_class and self._in_pipeline
            keys = [_PIPELINE_RUN_LABEL if is_narrow else _TASK_RUN_LABEL]
        elif stable := {key: value for key, value in found if value is not None}:
            key = next((each for each in _PREFERRED_LABELS if each in stable), min(stable))
            return {"matchLabels": {key: stable[key]}}
        else:
            keys = sorted(key for key, _ in found)
        return {"matchExpressions": [{"key": keys[0], "operator": "Exists"}]} if keys else {}


async def read_templates(reader: ObjectReader, kinds: Iterable[PodKind]) -> None:
    """Replace next pods by those of the templates of workloads that can be read. Raise nothing."""
    by_workload: dict[WorkloadName, list[PodKind]] = {}
    for each in kinds:
        if _GROUPS.get(each.workload.kind) == each.workload.group:
            by_workload.setdefault(each.workload, []).append(each)
    denied: set[tuple[str, str]] = set()
    """The namespaces and kinds of which one workload was denied. Usually, all of them are."""
    for (kind, name, namespace, group), pods in [*by_workload.items()][:_MAX_READ]:
        documents: list[Json] = []
        if (namespace, kind) not in denied and OBJECT_NAME.fullmatch(name):
            try:
                documents = await reader.named(group, kind, name, namespace)
            except NotAllowedError:
                denied.add((namespace, kind))
            except (ApiError, Unreachable):
                pass
        for created in pods_of(Document(documents[0])) if documents else ():
            with suppress(*DECODE_ERRORS):
                if isinstance(created, Workload):
                    decode_pod(encoded := msgspec.json.encode(created.created_pod))
                    for each in pods:
                        each.encoded, each.has_template = encoded, True


def selectable(pod: Pod, workload: WorkloadName) -> set[tuple[str, str | None]]:
    """Return the labels that later pods of a workload are likely to have too.

    A value is None if only the key is likely. A number alone counts something, such as the runs of
    a task. A pod that always restarts is of no run.
    """
    labels = pod.labels or {}
    changing = {key for key in labels if _CHANGING_KEY.fullmatch(_WORD.sub("-", key))}
    if "deploymentconfig" in labels:  # `deployment` names one of its rollouts.
        changing.add("deployment")
    # A revision of Knative is the value of the label `app` too.
    excluded = {labels[key] for key in changing if key.endswith(("revision", "-name"))}
    excluded.add(pod.name)
    of_run = pod.spec.restart_policy not in (None, "Always")
    if of_run:
        excluded.add(workload.name)
    stable = {
        (key, value)
        for key, value in labels.items()
        if value
        and key not in changing
        and value not in excluded
        and not value.isdecimal()
        and not _UNIQUE.fullmatch(value)
        and (key in _PREFERRED_LABELS or not _SHORT_HASH.fullmatch(value))
        and not (of_run and _OF_ONE_RUN.fullmatch(value))
    }
    return stable | {(key, None) for key in labels.keys() - changing if _OF_APPLICATION.match(key)}
