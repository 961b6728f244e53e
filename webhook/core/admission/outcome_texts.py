"""What channels derive from the outcomes of a decision: texts, JSON and counts.

They depend on few facts, such as the names of containers, so the decisions about pods of many
templates share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from webhook.core.admission.response import audit_annotations_for, encode_texts, warnings_for
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
    """The audit annotations in one line."""
    texts_json: bytes
    """A JSON fragment with the members that follow the patch in the response."""
    reason_counts: ReasonCounts
    applied_pairs: tuple[tuple[str, str], ...]
    """The pairs of a policy and a remedy with an edit."""


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
