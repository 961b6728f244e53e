"""The decision about a pod and its reasons, which every channel renders.

A cached decision answers many reviews, so it holds its patch in encoded form.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from webhook.core.admission.response import audit_annotations_for, encode_texts, warnings_for
from webhook.core.images import ImageQuery
from webhook.core.patch.received_command import PatchTemplate
from webhook.core.patch.self_check import Operation
from webhook.core.pod import Pod
from webhook.core.reasons import Outcome, Reason


class DecisionTexts(NamedTuple):
    """What channels derive from the outcomes of a decision."""

    audit_annotations: dict[str, str]
    """The annotations for the API server's audit log."""
    log_summary: str
    """The audit annotations in one line, for the log."""
    texts_json: bytes
    """A JSON fragment with the members that follow the patch in the response."""
    reason_counts: tuple[tuple[tuple[str, Reason], int], ...]
    """The number of outcomes for each pair of a remedy and a reason, for the metrics."""
    applied_pairs: tuple[tuple[str, str], ...]
    """The pairs of a policy and a remedy with an edit, for the metrics."""


class Decision(msgspec.Struct, frozen=True, dict=True):
    """The decision about one pod. podsettle allows every pod."""

    outcomes: tuple[Outcome, ...] = ()
    policies: tuple[str, ...] = ()
    """The names of the policies that cover the pod. Empty for a pod that is left unevaluated."""
    patch: bytes = b""
    """The patch as the API requires it: JSON in base64. Empty if the pod stays as it is.

    The patch is kept in this form only. Its operations consist of a hundred objects. In the
    decision cache they would take two thirds as much memory as the rest of an entry."""
    annotations: Mapping[str, str] = {}
    """The annotations that the patch sets."""
    missing_images: tuple[ImageQuery, ...] = ()
    """The images that must be looked up before a better decision is possible."""
    missing_namespace: str = ""
    """The pod's namespace, if nothing could be decided because it is unknown."""
    leaves_unevaluated: bool = False
    """Whether policies may cover the pod, and a reason for the whole pod keeps them from being
    applied. Not so for a pod whose author has opted out."""
    error: Exception | None = None
    """The exception behind an `InternalError`, for the log."""

    @property
    def missing(self) -> bool:
        """Whether a better decision may be possible after a look-up."""
        return bool(self.missing_images or self.missing_namespace)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations of the patch. Each call decodes them."""
        return tuple(msgspec.json.decode(a2b_base64(self.patch))) if self.patch else ()

    @property
    def already_settled(self) -> bool:
        """Whether an earlier review settled the pod, so that this one has nothing to change.

        This is so if the API server reviews a pod again, after another webhook has changed it.
        """
        return not self.patch and any(
            outcome.reason is Reason.ALREADY_SETTLED for outcome in self.outcomes
        )

    @cached_property
    def texts(self) -> DecisionTexts:
        """What channels derive from the outcomes."""
        annotations = audit_annotations_for(self.outcomes)
        # A Counter is four times as slow for so few outcomes.
        counts: dict[tuple[str, Reason], int] = {}
        for outcome in self.outcomes:
            pair = outcome.remedy, outcome.reason
            counts[pair] = counts.get(pair, 0) + 1
        pairs = ((each.policy, each.remedy) for each in self.outcomes if each.changed)
        return DecisionTexts(
            annotations,
            "; ".join([f"{key}: {text}" for key, text in annotations.items()]),
            encode_texts(warnings_for(self.outcomes), annotations),
            tuple(counts.items()),
            tuple(dict.fromkeys(pairs)),
        )


class Draft(NamedTuple):
    """The decision about all pods with the same facts. Their commands are missing in the patch."""

    decision: Decision
    template: PatchTemplate | None
    """The patch. None if the pods stay as they are."""

    def commands_of(self, pod: Pod) -> list[Sequence[str] | None]:
        """Return the commands of a pod that the patch contains."""
        return self.template.commands_of(pod) if self.template else []

    def complete(self, commands: Sequence[Sequence[str] | None]) -> Decision:
        """Return the decision about the pod with these commands, the result of `commands_of`."""
        if self.template is None:
            return self.decision
        decision = replace(self.decision, patch=self.template.fill(commands))
        # They do not depend on commands, so they are derived once for all pods with the same facts.
        vars(decision)["texts"] = self.decision.texts
        return decision

    def about(self, pod: Pod) -> Decision:
        """Return the decision about a pod with the facts of the draft."""
        return self.complete(self.commands_of(pod))


def pod_decision(reason: Reason, message: str = "", *, covered: bool = False) -> Decision:
    """Return a decision with one reason for the whole pod, which leaves the pod unchanged.

    `covered` says whether policies cover the pod, or may cover it.
    """
    return Decision((Outcome(reason, message=message),), leaves_unevaluated=covered)
