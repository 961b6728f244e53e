"""A decision with what its channels show of it: the encoded patch, texts and counts.

A cached decision answers many reviews, so the decision cache contains it in this form. The texts
and counts depend on few facts, such as the names of containers, so the decisions about pods of many
templates share them. Without that, a decision that is not cached takes a fifteenth more time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from webhook.core.admission.decision import Decision
from webhook.core.admission.response import (
    audit_annotations_for,
    decode_patch,
    encode_patch,
    encode_texts,
    warnings_for,
)
from webhook.core.patch.self_check import Operation
from webhook.core.reasons import Outcome, Reason

ReasonCounts: TypeAlias = tuple[tuple[tuple[str, Reason], int], ...]
"""The number of outcomes for each pair of a remedy and a reason."""
_Key: TypeAlias = tuple[tuple[Reason, str, str, str, bool], ...]
"""The reason, remedy, policy and container of each outcome, and whether it has an edit."""

_CACHED_TEXTS, _MAX_CACHED_OUTCOMES, _MAX_CACHED_CHARACTERS = 256, 20, 500
"""The number of results that are cached, and the maximum number of their outcomes and of the
characters in their names of containers. A tenant can cause all of them, so they take at most 4 MiB.
"""


class OutcomeTexts(NamedTuple):
    """What channels derive from outcomes."""

    audit_annotations: dict[str, str]
    """The annotations for the API server's audit log."""
    log_summary: str
    """The audit annotations in one line, for the log."""
    texts_json: bytes
    """A JSON fragment with the members that follow the patch in the response."""
    reason_counts: ReasonCounts
    """For the metrics."""
    applied_pairs: tuple[tuple[str, str], ...]
    """The pairs of a policy and a remedy with an edit, for the metrics."""


class RenderedDecision(msgspec.Struct, frozen=True):
    """A decision, and what the webhook answers and reports of it."""

    decision: Decision
    patch: bytes
    """The patch as the API requires it: JSON in base64. Empty if the pod stays as it is.

    The patch is kept in this form only. Its operations consist of a hundred objects. In the
    decision cache they would take two thirds as much memory as the rest of an entry."""
    texts: OutcomeTexts

    def with_decision(self, **fields: Any) -> RenderedDecision:
        """Return the same patch with a decision that differs in some fields."""
        decision = replace(self.decision, **fields)
        return RenderedDecision(decision, self.patch, texts_of(decision.outcomes))

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations of the patch. Each call decodes them."""
        return decode_patch(self.patch)

    @property
    def already_settled(self) -> bool:
        """Whether an earlier review settled the pod, so that this one has nothing to change.

        This is so if the API server reviews a pod again, after another webhook has changed it.
        """
        return not self.patch and any(
            outcome.reason is Reason.ALREADY_SETTLED for outcome in self.decision.outcomes
        )


def render(decision: Decision, operations: Sequence[Operation] = ()) -> RenderedDecision:
    """Return a decision, whose patch has these operations, with what channels show of it."""
    return RenderedDecision(decision, encode_patch(operations), texts_of(decision.outcomes))


def texts_of(outcomes: Sequence[Outcome]) -> OutcomeTexts:
    """Return what channels derive from outcomes. It may come from a cache."""
    key: list[tuple[Reason, str, str, str, bool]] = []
    characters = 0
    for outcome in outcomes:
        if outcome.reason.warns:
            # A warning has a message, which may contain any text of the pod.
            return _texts_of(outcomes)
        container = outcome.container
        characters += len(container)
        key.append((outcome.reason, outcome.remedy, outcome.policy, container, outcome.changed))
    if len(key) > _MAX_CACHED_OUTCOMES or characters > _MAX_CACHED_CHARACTERS:
        return _texts_of(outcomes)
    return _cached_texts(tuple(key))


@lru_cache(_CACHED_TEXTS)
def _cached_texts(key: _Key) -> OutcomeTexts:
    return _texts_of([Outcome(*each) for each in key])


def _texts_of(outcomes: Sequence[Outcome]) -> OutcomeTexts:
    annotations = audit_annotations_for(outcomes)
    # A Counter is four times as slow for so few outcomes.
    counts: dict[tuple[str, Reason], int] = {}
    for outcome in outcomes:
        pair = outcome.remedy, outcome.reason
        counts[pair] = counts.get(pair, 0) + 1
    pairs = ((outcome.policy, outcome.remedy) for outcome in outcomes if outcome.changed)
    return OutcomeTexts(
        annotations,
        "; ".join([f"{key}: {text}" for key, text in annotations.items()]),
        encode_texts(warnings_for(outcomes), annotations),
        tuple(counts.items()),
        tuple(dict.fromkeys(pairs)),
    )
