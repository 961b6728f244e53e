"""Previews of decisions. A preview has the decision on one pod, and the pod before and after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jsonpatch
import yaml

from webhook.core.admission.decider import OperatorSettings
from webhook.core.admission.decision import Decision
from webhook.core.admission.handler import decide_safely
from webhook.core.admission.review import make_request
from webhook.core.admission.summary import summary_of
from webhook.core.cluster.view import ClusterView, Namespace
from webhook.core.images import NO_IMAGES, KnownImages
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.policy_matches import PolicyMatch, match_policies
from webhook.core.preview.document import copy_value
from webhook.core.preview.line_diff import unified_diff
from webhook.core.preview.workloads import PassedOver, Workload, pods_of
from webhook.core.printable import is_printable, printable, printable_yaml
from webhook.core.reasons import Reason

DEFAULT_NAMESPACE = "default"
_MAX_DIFF_OPERATIONS = 500
"""The maximum number of patch operations in a diff. A larger diff would take seconds to make and
would be too long to read."""
MAX_DIFF_VALUES = 6_000
"""The maximum number of values in a pod for which a diff is made. A pod of 40 containers has 3,000.
Writing a pod as YAML takes several times as long as the rest of its preview."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The decision on one pod of a workload, and the effect of that decision."""

    workload: Workload
    namespace: str
    decision: Decision
    before: dict[str, Any]
    after: dict[str, Any]
    policies: PolicySet
    """The policies in force."""
    settings: OperatorSettings
    namespace_seen: Namespace | None
    """The namespace with the labels that the decision read. None if the view does not know it."""
    namespace_known: bool
    """Whether the view contains the namespace, or the caller gave its labels."""
    namespaces_read: bool = True
    """Whether the namespaces of the cluster could be read."""

    @property
    def summary(self) -> str:
        """The decision in one sentence."""
        return summary_of(self.decision.outcomes)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the preview assumes, for people."""
        if self.namespace_known:
            return self.workload.notes
        assumed = self.namespace_seen is not None
        note = namespace_note(self.namespace, assumed=assumed, read=self.namespaces_read)
        return (*self.workload.notes, note)

    @property
    def policy_matches(self) -> tuple[PolicyMatch, ...]:
        """What each policy does about the pod, and why."""
        reasons = [outcome.reason for outcome in self.decision.outcomes]
        if self.namespace_seen is None or Reason.MALFORMED_POD in reasons:
            return ()
        return match_policies(
            self.policies,
            self.namespace_seen,
            _labels_of(self.workload.created_pod),
            self.settings.own_namespace,
        )

    @property
    def diff(self) -> str:
        """The unified diff of the pod as YAML. Empty if nothing changes."""
        title = printable(self.workload.title)
        operations = self.decision.operations
        if not operations:
            return ""
        if len(operations) > _MAX_DIFF_OPERATIONS:
            return f"{title}: {len(operations)} operations; see the patch\n"
        if not _has_at_most(MAX_DIFF_VALUES, self.before):
            return f"{title}: more than {MAX_DIFF_VALUES} values; see the patch\n"
        # Not splitlines(), which also splits at characters that do not end a line in YAML.
        return unified_diff(
            to_yaml(self.before).rstrip("\n").split("\n"),
            to_yaml(self.after).rstrip("\n").split("\n"),
            f"{title} as it is",
            f"{title} as admitted",
        )


def _labels_of(pod: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the labels of a pod. A decision for a whole namespace does not check their type."""
    metadata = pod.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    return labels if isinstance(labels, Mapping) else {}


def namespace_note(name: str, *, assumed: bool, read: bool) -> str:
    """Return the sentence for a namespace that the view does not contain.

    `assumed` says whether the view then assumes a namespace without labels, and `read` whether the
    namespaces of the cluster could be read.
    """
    if assumed:
        return f"namespace {name!r} is not in the manifests: it is treated as one without labels"
    why = "is not in the cluster" if read else "could not be read"
    return f"namespace {name!r} {why}, so no policy can be chosen for its pods"


def preview_all(
    document: object,
    policies: PolicySet,
    view: ClusterView,
    settings: OperatorSettings,
    *,
    namespace: str | None = None,
    default_namespace: str = DEFAULT_NAMESPACE,
    namespace_labels: Mapping[str, str] | None = None,
    template_path: str | None = None,
    images: KnownImages = NO_IMAGES,
    namespaces_read: bool = True,
) -> Iterator[Preview | PassedOver]:
    """Decide on every pod in a document as the webhook would. Also yield objects without a pod.

    `namespace` replaces the workload's namespace, and `default_namespace` is that of workloads that
    name none. `namespace_labels` replace the labels that the
    namespace has in the view. `template_path` is the path of the pod template in kinds that
    podsettle does not know. `images` are the results of look-ups. `namespaces_read` says whether
    the view has the namespaces of the cluster. Raises nothing.
    """
    # Clients choose the labels, so their previews must not evict results that reviews have cached.
    policies_with_own_caches = policies.with_own_caches()
    relabelled_views: dict[str, ClusterView] = {}
    for workload in pods_of(document, template_path):
        if isinstance(workload, PassedOver):
            yield workload
            continue
        chosen_namespace = namespace or workload.namespace or default_namespace
        pod_view = view
        if namespace_labels is not None:
            if chosen_namespace not in relabelled_views:
                relabelled_views[chosen_namespace] = view.with_namespace_labels(
                    chosen_namespace, namespace_labels
                )
            pod_view = relabelled_views[chosen_namespace]
        request = make_request(workload.created_pod, chosen_namespace)
        decision, _ = decide_safely(request, policies_with_own_caches, pod_view, settings, images)
        operations = list(decision.operations)
        after = jsonpatch.apply_patch(copy_value(workload.pod), operations, in_place=True)
        yield Preview(
            workload,
            chosen_namespace,
            decision,
            workload.pod,
            after,
            policies_with_own_caches,
            settings,
            pod_view.namespace(chosen_namespace),
            namespace_labels is not None or view.contains_namespace(chosen_namespace),
            namespaces_read,
        )


def _has_at_most(limit: int, value: object) -> bool:
    """Return whether a value consists of at most `limit` values, itself included."""
    unvisited = [value]
    for _ in range(limit):
        if not unvisited:
            return True
        inner = unvisited.pop()
        if isinstance(inner, dict):
            unvisited.extend(inner.values())
        elif isinstance(inner, list):
            unvisited.extend(inner)
    return not unvisited


class _Dumper(yaml.CSafeDumper):
    """Writes YAML in block style, with multi-line texts as literal blocks and without aliases."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _represent_text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    # A literal block has no escapes. Inside double quotes, `to_yaml` can escape what deceives.
    style = '"' if not is_printable(text.replace("\n", "")) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def to_yaml(value: object) -> str:
    """Return a value as YAML for people. Keys keep their order.

    Characters that are not printable are escaped.
    """
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
    return printable_yaml(text)
