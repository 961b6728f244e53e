"""The decision about a pod and its reasons, in the one form that every channel renders."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TypeAlias

import msgspec

from webhook.core.admission.response import (
    audit_annotations_for,
    encode_response,
    warnings_for,
)
from webhook.core.images import ImageQuery
from webhook.core.patch.verify import Operation
from webhook.core.reasons import Outcome, Reason

ReasonCounts: TypeAlias = tuple[tuple[tuple[str, Reason], int], ...]
"""The number of outcomes for each pair of a remedy and a reason."""


class Decision(msgspec.Struct, frozen=True, dict=True):
    """The decision about one pod. podsettle allows every pod, unchanged if `operations` is empty.

    A cached decision answers many reviews, so the texts and JSON derived from it are cached too.
    """

    outcomes: tuple[Outcome, ...] = ()
    operations: tuple[Operation, ...] = ()
    policies: tuple[str, ...] = ()
    """The names of the policies that cover the pod."""
    missing_images: tuple[ImageQuery, ...] = ()
    """The images that must be looked up before a better decision is possible."""
    annotations: Mapping[str, str] = {}
    """The annotations that the patch sets."""

    @property
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
        """The number of outcomes by remedy and reason, for the metrics."""
        # A Counter is four times as slow for so few outcomes.
        counts: dict[tuple[str, Reason], int] = {}
        for outcome in self.outcomes:
            key = outcome.remedy, outcome.reason
            counts[key] = counts.get(key, 0) + 1
        return tuple(counts.items())

    @property
    def lacks_namespace(self) -> bool:
        """Whether nothing could be decided because the pod's namespace is unknown."""
        if self.policies:
            return False
        return any(outcome.reason is Reason.NAMESPACE_UNKNOWN for outcome in self.outcomes)

    @cached_property
    def response_json(self) -> bytes:
        """A JSON fragment that follows `"allowed":true` in the response."""
        return encode_response(self.operations, self.warnings, self.audit_annotations)
