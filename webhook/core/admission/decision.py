"""What podsettle decided about a pod, and why: one Decision that every channel renders."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TypeAlias

import msgspec

from webhook.core.admission.response import (
    audit_annotations_for,
    encode_response,
    warnings_for,
)
from webhook.core.images import ImageQuery
from webhook.core.patch.builder import Operation
from webhook.core.reasons import Outcome, Reason

ReasonCounts: TypeAlias = tuple[tuple[tuple[str, Reason], int], ...]
"""How often each reason is given, by remedy and reason."""


class Decision(msgspec.Struct, frozen=True, dict=True):
    """The decision on one pod, which is always allowed. Without `operations` nothing changes.

    A cached decision answers many reviews, so everything that is derived from it is cached too.
    """

    outcomes: tuple[Outcome, ...] = ()
    operations: tuple[Operation, ...] = ()
    policies: tuple[str, ...] = ()
    """The names of the policies that cover the pod."""
    missing_images: tuple[ImageQuery, ...] = ()
    """Images that have to be looked up for a better decision."""

    @cached_property
    def warnings(self) -> list[str]:
        """The warnings that `kubectl` prints."""
        return warnings_for(self.outcomes)

    @cached_property
    def audit_annotations(self) -> dict[str, str]:
        """The annotations for the API server's audit log."""
        return audit_annotations_for(self.outcomes)

    @cached_property
    def log_summary(self) -> str:
        """The audit annotations in one line, for the log."""
        return "; ".join(f"{key}: {text}" for key, text in self.audit_annotations.items())

    @cached_property
    def reason_counts(self) -> ReasonCounts:
        """How often each reason is given, for the metrics."""
        return tuple(Counter((o.remedy, o.reason) for o in self.outcomes).items())

    @cached_property
    def lacks_namespace(self) -> bool:
        """Whether nothing could be decided because the pod's namespace is unknown."""
        return any(outcome.reason is Reason.NAMESPACE_UNKNOWN for outcome in self.outcomes)

    @cached_property
    def response_json(self) -> bytes:
        """The response as a JSON fragment, to be appended after `"allowed":true`."""
        return encode_response(self.operations, self.warnings, self.audit_annotations)
