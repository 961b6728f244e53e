"""The pods at which a symptom was found, as far as a proposed policy depends on them.

Pods of one template are kept once. So the memory grows with templates, and it has a limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from webhook.core.cluster.view import ClusterView
from webhook.core.constants import DNS_LABEL_NAME, SYSTEM_NAMESPACE_PREFIXES
from webhook.core.decision_input import facts_of
from webhook.core.pod import DECODE_ERRORS, Pod, decode_pod
from webhook.core.policy.coverage import PolicySet
from webhook.core.remedies.base import FoundContainers
from webhook.inspect.findings import Finding
from webhook.inspect.next_pod import next_pod
from webhook.inspect.objects import LivePod
from webhook.inspect.scan.workload import WorkloadName, workload_of

_MAX_BYTES = 8 * 1024 * 1024
"""The maximum memory for the pods of one symptom. Without their environment, pods take a tenth of
what they take in etcd, so this suits thousands of templates."""
MAX_NAMED_CONTAINERS = 20
"""The maximum number of containers in a policy. Beyond it, the policy selects all of them."""

_encode = msgspec.json.Encoder().encode

_TEMPLATED_KINDS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"})
"""The kinds that give many pods the same labels. A Job or a TaskRun has labels of a single run."""
_GENERATED_LABELS = frozenset(
    {
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/job-name",
        "controller-revision-hash",
        "controller-uid",
        "job-name",
        "pod-template-generation",
        "pod-template-hash",
        "statefulset.kubernetes.io/pod-name",
    }
)
"""Labels that controllers add. Pods of a later revision or run have other values."""
_RELEASE_LABELS = frozenset({"app.kubernetes.io/version", "helm.sh/chart", "version"})
"""Labels that change with a release, so that a policy would no longer cover the workload."""
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
_OF_ONE_RUN = re.compile(
    r".*-(\d+|[bcdfghjklmnpqrstvwxz2456789]{5})"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    re.ASCII,
)
"""A value that ends in a number or in a generated suffix (k8s.io/apimachinery `util/rand`), or that
is a UID."""


@dataclass(slots=True)
class PodKind:
    """Pods about which a decision is the same."""

    namespace: str
    workload: WorkloadName
    """The workload of the first of them."""
    containers: frozenset[str]
    """The names of the containers with the symptom. Empty if whole pods have it."""
    encoded: bytes
    """The next pod."""
    count: int = 1

    @property
    def pod(self) -> Pod:
        """The next pod."""
        return decode_pod(self.encoded)


class _Key(NamedTuple):
    namespace: str
    template: bytes
    """The facts about the pod. Empty for pods whose workload has a template."""
    workload: str
    plan: int
    containers: frozenset[str]


class FoundPods:
    """The pods with one symptom. `view` and `policies` say which of them are decided alike."""

    def __init__(self, view: ClusterView, policies: PolicySet, max_bytes: int = _MAX_BYTES) -> None:
        self._view, self._policies = view, policies
        self._max_bytes = max_bytes
        self._size = 0
        self._kinds: dict[_Key, PodKind] = {}
        self._containers: tuple[set[str], set[str]] = set(), set()
        self._labels: dict[str, str] | None = None
        self._of_task_runs = True
        self.count = 0
        """The number of pods."""
        self.uncompared = 0
        """The number of pods that are not in `kinds`, because they would take too much memory."""
        self.kept_alive = 0
        """The number of pods that have the symptom only at containers that are kept alive."""
        self.namespaces: set[str] = set()
        """The namespaces of the others."""

    def add(self, pod: LivePod, findings: Sequence[Finding]) -> None:
        """Add a pod and what was found at it."""
        self.count += 1
        containers = [each.container for each in findings]
        if all(each is not None and each.kept_alive for each in containers):
            self.kept_alive += 1
            return
        self.namespaces.add(pod.metadata.namespace)
        workload = workload_of(pod.metadata)
        labels = stable_labels(pod, workload)
        self._labels = (
            labels if self._labels is None else dict(self._labels.items() & labels.items())
        )
        self._of_task_runs &= _TASK_RUN_LABEL in (pod.metadata.labels or {})
        found = [each for each in containers if each is not None and not each.kept_alive]
        for container in found:
            names = self._containers[0 if container.init else 1]
            if len(names) <= MAX_NAMED_CONTAINERS and DNS_LABEL_NAME.fullmatch(container.name):
                names.add(container.name)
        self._keep(pod, workload, frozenset(each.name for each in found))

    def _keep(self, live: LivePod, workload: WorkloadName, containers: frozenset[str]) -> None:
        namespace = live.metadata.namespace
        try:
            pod = next_pod(live, self._view.runtime_classes)
            has_template = workload.kind in _TEMPLATED_KINDS or workload.kind == "Job"
            facts = b"" if has_template else _encode(facts_of(pod))
        except DECODE_ERRORS:
            self.uncompared += 1
            return
        title = workload.title if has_template else ""
        key = _Key(namespace, facts, title, self._plan_of(pod, namespace), containers)
        known = self._kinds.get(key)
        if known is not None:
            known.count += 1
            return
        encoded = _encode(pod)
        self._size += len(encoded) + len(facts)
        if self._size > self._max_bytes:
            self.uncompared += 1
        else:
            self._kinds[key] = PodKind(namespace, workload, containers, encoded)

    def _plan_of(self, pod: Pod, namespace: str) -> int:
        """Return the number of the plan of the policies in force. -1 if there is none."""
        known = self._view.namespace(namespace)
        if known is None:
            return -1
        plan = self._policies.coverage_for(known, None).group.plan(pod.labels or {})
        return plan.number if plan is not None else -1

    @property
    def kinds(self) -> Iterator[PodKind]:
        """The pods, as far as they could be kept."""
        return iter(self._kinds.values())

    @property
    def containers(self) -> FoundContainers:
        """The containers with the symptom. `*` stands for more than a person would read.

        In pods of TaskRuns it stands for all init containers, because Tekton adds them to each pod,
        and all of them end quickly.
        """
        init, regular = (
            ("*",) if len(names) > MAX_NAMED_CONTAINERS else tuple(sorted(names))
            for names in self._containers
        )
        return FoundContainers(("*",) if self._of_task_runs else init, regular)

    @property
    def pod_selector(self) -> dict[str, Any]:
        """A selector that all pods match, and pods of later runs too. Empty if there is none."""
        if self._of_task_runs:
            return {"matchExpressions": [{"key": _TASK_RUN_LABEL, "operator": "Exists"}]}
        labels = self._labels or {}
        keys = [key for key in _PREFERRED_LABELS if key in labels] or sorted(labels)
        return {"matchLabels": {keys[0]: labels[keys[0]]}} if keys else {}


def stable_labels(pod: LivePod, workload: WorkloadName) -> dict[str, str]:
    """Return the labels that the next pod of the workload is likely to have too."""
    labels = pod.metadata.labels or {}
    unstable = _GENERATED_LABELS | _RELEASE_LABELS
    of_run = workload.kind not in _TEMPLATED_KINDS
    names = {pod.metadata.name, workload.name}
    return {
        key: value
        for key, value in labels.items()
        if key not in unstable
        and value
        and not (of_run and (value in names or _OF_ONE_RUN.fullmatch(value)))
    }


def is_system(namespace: str) -> bool:
    """Return whether a namespace belongs to the cluster itself."""
    return namespace.startswith(SYSTEM_NAMESPACE_PREFIXES)
