"""What a command knows of a cluster: its view, what it lacks, and podsettle's settings there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decider import Decider, OperatorSettings
from webhook.core.admission.decision import Decision, pod_decision
from webhook.core.admission.review import GroupVersionResource, Request
from webhook.core.pod import Pod, decode_pod
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.validation_errors import ManifestProblem
from webhook.core.preview.pod_decider import DEFAULT_NAMESPACE
from webhook.core.preview.runtime_class_fields import class_fields, with_fields
from webhook.core.reasons import Reason
from webhook.inspect.cluster_flags import NO_FLAGS, ClusterFlags

if TYPE_CHECKING:
    # Manifests need no client of an API server, whose import takes 0.4 s and 60 MiB.
    from webhook.cluster.rights import Unread
    from webhook.cluster.view_reader import Kind
    from webhook.inspect.installation import WebhookCalls

_PODS = GroupVersionResource("", "v1", "pods")


@dataclass(frozen=True)
class KnownCluster:
    """A cluster, or the manifests that describe one."""

    view: Snapshot
    settings: OperatorSettings = field(default_factory=OperatorSettings)
    """The settings with which podsettle would decide there."""
    unread: tuple[Unread, ...] = ()
    """The kinds of the view that could not be read. Empty for manifests."""
    created: Mapping[str, datetime] = field(default_factory=dict)
    """When each policy was created, by its name."""
    calls: WebhookCalls | None = None
    """For which pods the API server calls podsettle. None if there is no API server."""
    flags: ClusterFlags = NO_FLAGS
    """The flags with which printed commands use this cluster."""
    title: str = ""
    """The manifests, or the context and the address of the API server."""
    namespace: str = DEFAULT_NAMESPACE
    """The namespace of objects that name none."""
    problems: tuple[ManifestProblem, ...] = ()
    """The problems of manifests and policies, which are not in the view."""
    notes: tuple[str, ...] = ()
    """What the view lacks, and what was assumed. A command prints them on standard error."""
    why_image_is_assumed: str = ""
    """Why the helper's image in `settings` is only a placeholder. Empty if it is none."""
    lists_namespaces: bool = True
    """Whether the view has all namespaces. Else it has only those that the command named."""

    @property
    def is_live(self) -> bool:
        """Whether there is an API server. Else the cluster is described by manifests."""
        return self.calls is not None

    @property
    def has_invalid_input(self) -> bool:
        """Whether the manifests have problems. Those of a cluster are not the user's input."""
        return bool(self.problems) and not self.is_live

    def has_read(self, kind: Kind) -> bool:
        """Return whether the view contains the objects of a kind, as far as they exist.

        Of namespaces, these may be only those that the command named.
        """
        return all(unread.resource != kind for unread in self.unread)

    def lists(self, kind: Kind) -> bool:
        """Return whether the view has all objects of a kind. Manifests may omit a kind."""
        listed = {"namespaces": self.view.namespaces, "runtimeclasses": self.view.runtime_classes}
        return self.has_read(kind) if self.is_live else bool(listed.get(kind, True))

    def decide(self, pod: Pod, namespace: str) -> Decision:
        """Return what podsettle decides when a pod is created. Raises nothing.

        Images are not looked up, because registries would be asked about every pod.
        """
        if pod.spec.runtime_class_name:
            encoded = msgspec.Raw(msgspec.json.encode(pod))
            of_class = class_fields(encoded, self.view.runtime_classes)
            if of_class.refusal:
                return pod_decision(Reason.RUNTIME_CLASS_CONFLICT, of_class.refusal)
            if of_class.spec:
                pod = decode_pod(msgspec.json.encode(with_fields(encoded, of_class.spec)))
        request = Request(
            uid="", resource=_PODS, namespace=namespace, operation="CREATE", object=pod
        )
        return self._decider.decide(request, self.view)

    def with_policies(self, policies: Iterable[SettlePolicy]) -> KnownCluster:
        """Return the cluster with more policies, which replace those of their names.

        Namespaces that could not be read then count as ones without labels.
        """
        replaced = self.view.policies.replaced(policies)
        return replace(self, view=replace(self.view, policies=replaced, invents_namespaces=True))

    @cached_property
    def _decider(self) -> Decider:
        return Decider(self.settings, DecisionCache())
