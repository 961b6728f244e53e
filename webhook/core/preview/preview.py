"""Previews of decisions. A preview has the decision on one pod, and the pod before and after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from webhook.core.admission.decider import OperatorSettings
from webhook.core.images import NO_IMAGES, KnownImages
from webhook.core.patch.self_check import Operation
from webhook.core.policy.snapshot import Snapshot
from webhook.core.preview.document import Document
from webhook.core.preview.model import PodPreview
from webhook.core.preview.pod_before_and_after import diff_of, patched, render_pod
from webhook.core.preview.pod_decider import (
    DEFAULT_NAMESPACE,
    PodDecider,
    PodDecision,
)
from webhook.core.preview.pods_in_document import PassedOver, Workload, pods_of


@dataclass(frozen=True, slots=True)
class Preview:
    """The decision on one pod of a workload, and the effect of that decision."""

    workload: Workload
    decided: PodDecision
    after: dict[str, Any]

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations of the patch."""
        return self.decided.decision.operations

    @property
    def notes(self) -> tuple[str, ...]:
        """What the preview assumes, for people."""
        return (*self.workload.notes, *self.decided.notes)

    @property
    def diff(self) -> str:
        """The unified diff of the pod as YAML. Empty if nothing changes."""
        return diff_of(self.workload, self.after, len(self.operations))


def preview_all(
    document: Document,
    view: Snapshot,
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
    name none. `template_path` is the path of the pod template in kinds that podsettle does not
    know. The other arguments are those of `PodDecider`. Raises nothing.
    """
    decider = PodDecider(
        view, settings, namespace_labels=namespace_labels, namespaces_read=namespaces_read
    )
    for workload in pods_of(document, template_path):
        if isinstance(workload, PassedOver):
            yield workload
            continue
        chosen_namespace = namespace or workload.namespace or default_namespace
        decided = decider.decide(workload.created_pod, chosen_namespace, images)
        workload = workload.with_spec_fields(decided.class_fields)
        yield Preview(workload, decided, patched(workload.pod, decided.decision.operations))


def render(preview: Preview) -> PodPreview:
    """Return the JSON form of a preview."""
    decision = preview.decided.render()
    return PodPreview.model_validate(render_pod(preview.workload, decision, preview.after))
