"""The decision about a pod and its reasons, which every channel renders."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from webhook.core.images import ImageQuery
from webhook.core.reasons import Outcome, Reason


class Decision(msgspec.Struct, frozen=True):
    """The decision about one pod. podsettle allows every pod.

    The patch stands beside the decision (see `RenderedDecision`).
    """

    outcomes: tuple[Outcome, ...] = ()
    policies: tuple[str, ...] = ()
    """The names of the policies that cover the pod. Empty for a pod that is left unevaluated."""
    missing_images: tuple[ImageQuery, ...] = ()
    """The images that must be looked up before a better decision is possible."""
    annotations: Mapping[str, str] = {}
    """The annotations that the patch sets."""
    leaves_unevaluated: bool = False
    """Whether policies cover the pod, and a reason for the whole pod keeps them from being applied.
    Not so for a pod whose author has opted out."""

    @property
    def lacks_namespace(self) -> bool:
        """Whether nothing could be decided because the pod's namespace is unknown."""
        if self.policies:
            return False
        return any(outcome.reason is Reason.NAMESPACE_UNKNOWN for outcome in self.outcomes)
