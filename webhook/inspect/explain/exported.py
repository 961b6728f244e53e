"""What native policies do to pods, beside the webhook or without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from webhook.core.labels import Labels
from webhook.core.preview.model import PodPreview
from webhook.inspect.explain.record import Record
from webhook.inspect.exported_policies import ExportedPolicy
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.webhook_calls import Called, WebhookCall


class ExportedForPod:
    """The native policies that select a pod by its namespace and its labels."""

    def __init__(
        self,
        policies: Sequence[ExportedPolicy],
        cluster: KnownCluster,
        namespace: str,
        labels: Labels,
        opted_out: str,
    ) -> None:
        """`opted_out` is the text of the pod's annotation ANNOTATION_SKIP."""
        known = cluster.view.namespace(namespace)
        classes = cluster.view.runtime_classes
        skipped = {part.strip() for part in opted_out.split(",")}
        self._calls = cluster.calls
        self.policies = [
            policy
            for policy in policies
            if known is not None
            and opted_out.strip() != "true"
            and policy.selects(known, labels, cluster.settings.own_namespace)
            and not (cluster.has_read("runtimeclasses") and policy.missing_class(classes))
        ]
        self.pairs = frozenset(
            (policy.source, remedy)
            for policy in self.policies
            for remedy in policy.remedies
            if remedy not in skipped
        )
        """The SettlePolicy and the name of each remedy that they apply."""
        mutating = {
            each.metadata.name
            for each in cluster.view.policies.documents
            if each.spec.action == "Mutate"
        }
        self.undecided = frozenset(pair for pair in self.pairs if pair[0] not in mutating)
        """Those about which no decision of today says anything, because the SettlePolicy is not in
        the cluster, or only reports."""

    def changes_some(self, today: PodPreview | None) -> bool:
        """Return whether they apply a remedy that podsettle would apply today."""
        return not self.pairs.isdisjoint(_wanted(today))

    def changes_all(self, today: PodPreview | None) -> bool:
        """Return whether they apply all remedies that podsettle would apply today."""
        wanted = _wanted(today)
        return bool(wanted) and wanted <= self.pairs

    def notes(
        self,
        call: WebhookCall | None,
        record: Record | None = None,
        created: datetime | None = None,
    ) -> Iterator[str]:
        """Yield which policies select such a pod, and what they applied to an existing one.

        `record` and `created` are those of the existing pod.
        """
        for policy in self.policies:
            remedies = [each for each in policy.remedies if (policy.source, each) in self.pairs]
            if remedies:
                yield (
                    f"{policy.title}, {policy.origin}, selects such a pod: the API server itself "
                    f"applies {', '.join(remedies)}."
                )
            applied = [
                remedy
                for source, remedy in (record.applied if record else ())
                if source == policy.source and remedy in policy.remedies
            ]
            if created and policy.created and policy.created > created:
                yield f"{policy.name} did not change this pod, because it is newer than the pod."
            elif applied and self._is_without_webhook(call):
                yield (
                    f"{policy.name} applied {', '.join(applied)} to this pod, as the API server "
                    "does not call podsettle for such a pod."
                )
            elif applied:
                yield (
                    f"{policy.name} or the webhook applied {', '.join(applied)} to this pod: both "
                    "leave the same annotations."
                )

    def _is_without_webhook(self, call: WebhookCall | None) -> bool:
        if call is not None:
            return call.called is Called.NO
        return self._calls is not None and self._calls.readable and not self._calls.webhooks


def _wanted(today: PodPreview | None) -> set[tuple[str, str]]:
    outcomes = today.outcomes if today is not None else ()
    return {(each.policy, each.remedy) for each in outcomes if each.changed}
