"""What every remedy is: a function from a pod, its settings and a context to findings and edits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from webhook.core.decision import Reason
from webhook.core.patch import PodPatch
from webhook.core.review import Pod
from webhook.core.view import ClusterView, Namespace


@dataclass(frozen=True, slots=True)
class Context:
    """What a remedy may look at beside the pod."""

    view: ClusterView
    namespace: Namespace
    linger_image: str | None
    """The image of the helper; None where nobody said which it is."""


class Finding(NamedTuple):
    """A reason from a remedy, for one container or for the pod."""

    reason: Reason
    container: str = ""
    changed: bool = False
    message: str = ""


class Remedy(Protocol):
    """Decides for one pod, and puts the edits that it decides on into the patch."""

    def __call__(
        self, pod: Pod, settings: Any, context: Context, patch: PodPatch
    ) -> Iterator[Finding]:
        """Findings in the order of the pod's containers."""
