"""The interface to which the handler reports what podsettle could not do for a policy.

`webhook.cluster.event_writer` implements it for a replica that runs in a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from webhook.core.admission.review import Request
from webhook.core.reasons import Outcome


class EventReporter(Protocol):
    """A writer of Events on the controllers of pods."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of Events by result, for the metrics."""

    def offer(self, request: Request[Any], unmet: Sequence[Outcome]) -> None:
        """Report the unmet wishes of policies for the pod of a request.

        This neither waits nor raises an exception. The caller leaves out dry runs.
        """
