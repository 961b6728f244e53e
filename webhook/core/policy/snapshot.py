"""The view of a cluster together with the policies in force, as they were at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from webhook.core.cluster.view import ClusterView
from webhook.core.policy.coverage import PolicySet


@dataclass(frozen=True, slots=True)
class Snapshot(ClusterView):
    """A view with the policies in force."""

    policies: PolicySet = field(default_factory=PolicySet)
