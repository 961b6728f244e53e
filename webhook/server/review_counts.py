"""What each review is counted by: plain numbers, told when somebody scrapes.

The client library's own counters take a lock for each increment, all together a fifth of the time
that a review takes. Reviews are counted on one thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from webhook.core.admission.decision import Decision, ReasonCounts
from webhook.core.reasons import Reason

_RARE = (Reason.OVERLOADED, Reason.DEADLINE_EXCEEDED, Reason.INTERNAL_ERROR)
"""What pods are left unsettled for by a fault of podsettle or on the way to it."""

_MOST_UNCOUNTED = 64
"""Tallies that are kept for it: never the decisions, which may take megabytes."""

BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    # Reviews that waited for a registry.
    *(1.0, 2.5, 5.0, 10.0, 15.0),
)
"""Seconds, up to the longest that a review takes."""


class ReviewCounts(Collector):
    """Reviews, the reasons in them and how long they took."""

    def __init__(self) -> None:
        self._patched = 0
        self._unchanged = 0
        # There before it happens, so that a rate sees the first time as well.
        self._outcomes: Counter[tuple[str, Reason]] = Counter({("", r): 0 for r in _RARE})
        # By identity: decisions are remembered, and to look all their reasons up each time takes
        # as long as to find such a decision.
        self._uncounted: dict[int, tuple[ReasonCounts, int]] = {}
        self._durations = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0

    def count(self, decision: Decision, seconds: float) -> None:
        """Count an answered review and the reasons in it."""
        if decision.operations:
            self._patched += 1
        else:
            self._unchanged += 1
        tally = decision.reason_counts
        _, times = self._uncounted.get(id(tally), (tally, 0))
        self._uncounted[id(tally)] = tally, times + 1
        if len(self._uncounted) > _MOST_UNCOUNTED:
            self._count_outcomes()
        self._durations[bisect_left(BUCKETS, seconds)] += 1
        self._seconds += seconds

    def _count_outcomes(self) -> None:
        for tally, times in self._uncounted.values():
            for what, count in tally:
                self._outcomes[what] += count * times
        self._uncounted.clear()

    def collect(self) -> Iterator[Metric]:
        """The metrics, as the registry asks for them."""
        reviews = CounterMetricFamily(
            "podsettle_reviews",
            "Admission reviews answered, by what the answer does to the pod.",
            labels=["result"],
        )
        reviews.add_metric(["patched"], self._patched)
        reviews.add_metric(["unchanged"], self._unchanged)
        yield reviews
        self._count_outcomes()
        outcomes = CounterMetricFamily(
            "podsettle_outcomes",
            "Reasons given, by remedy; no remedy where the reason holds for the whole pod.",
            labels=["remedy", "reason"],
        )
        for (remedy, reason), count in self._outcomes.items():
            outcomes.add_metric([remedy, reason], count)
        yield outcomes
        durations = HistogramMetricFamily(
            "podsettle_review_duration_seconds",
            "From a review's last byte read to its answer made, with waiting and look-ups.",
        )
        bounds = map(floatToGoString, (*BUCKETS, float("inf")))
        durations.add_metric(
            [], list(zip(bounds, accumulate(self._durations), strict=True)), self._seconds
        )
        yield durations
