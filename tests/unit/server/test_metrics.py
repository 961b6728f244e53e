"""Counts of reviews and their reasons."""

from __future__ import annotations

import gc
from collections import Counter

from webhook.core.admission.decision import Decision
from webhook.core.reasons import Outcome, Reason
from webhook.server.metrics import ReviewCounts


def counted(counts: ReviewCounts) -> dict[tuple[str, str], float]:
    _, outcomes, _ = counts.collect()
    found = {
        (sample.labels["remedy"], sample.labels["reason"]): sample.value
        for sample in outcomes.samples
    }
    return {what: number for what, number in found.items() if number}


def test_reasons_of_repeated_decisions_are_all_counted() -> None:
    counts = ReviewCounts()
    twice = Outcome(Reason.APPLIED, "postInitSleep", "p", "a", True)
    some = [
        Decision((twice, twice)),
        Decision((Outcome(Reason.NO_POLICY),)),
        *[Decision((Outcome(Reason.NOT_NEEDED, "runtimeClass"),)) for _ in range(200)],
    ]
    wanted: Counter[tuple[str, str]] = Counter()
    for number in range(1_000):
        decision = some[number % 3 if number < 400 else number % len(some)]
        counts.count(decision, 0.001)
        wanted.update((outcome.remedy, str(outcome.reason)) for outcome in decision.outcomes)
        if number % 300 == 0:
            assert counted(counts) == wanted
    assert counted(counts) == wanted


def test_counting_keeps_no_reference_to_a_decision() -> None:
    counts = ReviewCounts()
    policies = tuple(iter("p"))
    counts.count(Decision((Outcome(Reason.APPLIED),), policies=policies), 0.001)
    assert not any(isinstance(found, Decision) for found in gc.get_referrers(policies))
