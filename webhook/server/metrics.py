"""The Prometheus metrics.

The values of all labels come from fixed sets or are names of policies, so clients cannot increase
the number of series.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import accumulate
from typing import Literal, TypeAlias

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from webhook.cluster.source import Check, NamespaceLookup
from webhook.core.admission.decision import Decision
from webhook.core.reasons import Reason
from webhook.server.still_needed_metric import NeededPolicies

# A second series for each counter, with the time of its creation, would only enlarge scrapes.
disable_created_metrics()  # type: ignore[no-untyped-call]

_FAILURE_REASONS = (Reason.OVERLOADED, Reason.DEADLINE_EXCEEDED, Reason.INTERNAL_ERROR)
"""Reasons that mean a failure of podsettle or of the network. Their series start at zero, so that
PromQL's `rate()` includes the first failure."""

BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    # Reviews with image look-ups.
    *(1.0, 2.5, 5.0, 10.0, 15.0),
)
"""Upper bounds of the histogram in seconds, up to the longest time that a review can take."""


PreviewResult: TypeAlias = Literal[
    "answered", "refused", "deadline", "memory", "crashed", "overloaded", "disconnected"
]
"""Values of the label `result` in the metric podsettle_previews_total."""
MAX_SETTLED_SERIES = 1_000
"""The maximum number of pairs of a policy and a remedy that are counted on their own. A process may
see many more policies than exist at one time."""


class ReviewCounts(Collector):
    """Counts of reviews, settled pods and reasons, and a histogram of the durations of reviews.

    The counts are plain numbers without locks, so only one thread may count. Another one may
    collect. The counters of the Prometheus client library take a lock for each increment. Together,
    these locks would take a fifth of the time of a review.
    """

    def __init__(self) -> None:
        self._patched = 0
        self._unchanged = 0
        # The key is a remedy and a reason. The remedy is empty if the reason is for the whole pod.
        self._outcomes: defaultdict[tuple[str, Reason], int] = defaultdict(
            int, {("", reason): 0 for reason in _FAILURE_REASONS}
        )
        # The key is a policy and a remedy.
        self._settled: dict[tuple[str, str], int] = {}
        self._durations = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0

    def count(self, decision: Decision, seconds: float, *, dry_run: bool = False) -> None:
        """Count an answered review, its reasons and its duration.

        A dry run settles no pod.
        """
        if decision.patch:
            self._patched += 1
            if not dry_run:
                self._count_settled(decision.texts.applied_pairs)
        else:
            self._unchanged += 1
        outcomes = self._outcomes
        for outcome, count in decision.texts.reason_counts:
            outcomes[outcome] += count
        self._durations[bisect_left(BUCKETS, seconds)] += 1
        self._seconds += seconds

    def _count_settled(self, pairs: Iterable[tuple[str, str]]) -> None:
        settled = self._settled
        for pair in pairs:
            if pair in settled:
                settled[pair] += 1
            elif len(settled) < MAX_SETTLED_SERIES:
                settled[pair] = 1
            else:
                rest = "", pair[1]  # All other policies have one series.
                settled[rest] = settled.get(rest, 0) + 1

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for a scrape."""
        reviews = CounterMetricFamily(
            "podsettle_reviews",
            "Answered admission reviews. `result` is `patched` if the answer contained a patch, "
            "else `unchanged`.",
            labels=["result"],
        )
        reviews.add_metric(["patched"], self._patched)
        reviews.add_metric(["unchanged"], self._unchanged)
        yield reviews
        outcomes = CounterMetricFamily(
            "podsettle_outcomes",
            "Reported reasons. `remedy` is empty if the reason is for the whole pod.",
            labels=["remedy", "reason"],
        )
        # A copy, because reviews are counted meanwhile.
        for (remedy, reason), count in self._outcomes.copy().items():
            outcomes.add_metric([remedy, reason], count)
        yield outcomes
        settled = CounterMetricFamily(
            "podsettle_settled_pods",
            "Pods that got a remedy. A pod counts when podsettle answers, also if the API server "
            "refuses it afterwards. Dry runs do not count. `policy` is empty if podsettle has "
            f"already counted {MAX_SETTLED_SERIES} other pairs of a policy and a remedy.",
            labels=["policy", "remedy"],
        )
        for pair, count in self._settled.copy().items():
            settled.add_metric(pair, count)
        yield settled
        durations = HistogramMetricFamily(
            "podsettle_review_duration_seconds",
            "Time from the last byte of a review to its answer, including waiting and image "
            "look-ups.",
        )
        bounds = map(floatToGoString, (*BUCKETS, float("inf")))
        durations.add_metric(
            [], list(zip(bounds, accumulate(self._durations), strict=True)), self._seconds
        )
        yield durations


class Metrics:
    """The metrics of one server, in their own registry."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        self.reviews = ReviewCounts()
        self.registry.register(self.reviews)
        self.needed_policies = NeededPolicies()
        self.registry.register(self.needed_policies)
        self._refused = counter(
            "podsettle_requests_refused",
            "Requests that were answered with an HTTP error, by its status: those to the port of "
            "reviews, and those to /mutate on the web port.",
            ["status"],
        )
        self.namespace_lookups = counter(
            "podsettle_namespace_lookups",
            "Reviews of pods whose namespace the watch had not shown yet, by the `result` of the "
            "look-up. `missing`: the namespace does not exist. `failed`: the API server did not "
            "answer in time, or with an error. `refused`: no request was sent in time, because "
            "look-ups for the same client address, or for all, were too many.",
            ["result"],
        )
        for result in NamespaceLookup:  # All series start at zero.
            self.namespace_lookups.labels(result)
        self._image_lookups = counter(
            "podsettle_image_lookups",
            "Look-ups of a tag or a digest at a registry. `result` is `found` or `failed`. Answers "
            "from the cache are not counted.",
            ["result"],
        )
        for found in ("found", "failed"):
            self._image_lookups.labels(found)
        self._previews = counter(
            "podsettle_previews",
            "Requests to /preview, by `result`. `deadline` and `memory`: the "
            "worker process reached this limit and was killed. `crashed`: the worker process ended "
            "unexpectedly.",
            ["result"],
        )
        self.policies = gauge("podsettle_policies", "Policies in force.")
        self.manifest_problems = gauge(
            "podsettle_manifest_problems",
            "Problems in policies or manifests. If an object has a problem, podsettle continues to "
            "use its last valid state.",
        )
        self.certificate_expiry = gauge(
            "podsettle_certificate_expiry_timestamp_seconds",
            "When the served certificate expires, in seconds since 1970.",
        )
        self.in_flight = gauge(
            "podsettle_requests_in_flight",
            "Reviews that wait for the rest of their body, for a namespace or an image look-up, or "
            "for the client to read the answer. A review that does not have to wait is answered "
            "immediately, and is not counted.",
        )
        self.tasks = gauge(
            "podsettle_tasks",
            "Tasks of the event loop. The number rises and falls with the requests in progress. A "
            "number that only rises is a defect of podsettle.",
        )
        self._check_ready = gauge(
            "podsettle_check_ready",
            "1 if a check of /readyz passes, else 0. `shutdown` is 0 while podsettle shuts down.",
            ["check"],
        )
        self._check_noted = gauge(
            "podsettle_check_noted",
            "1 if a check in /readyz?verbose reports a problem, else 0. The replica can be ready "
            "in spite of the problem. For example, it answers reviews without the API server.",
            ["check"],
        )
        build = gauge(
            "podsettle_build_info",
            "Always 1. The label is podsettle's version.",
            ["version"],
        )
        build.labels(version).set(1)
        ProcessCollector(registry=self.registry)

    def set_checks(self, checks: Iterable[Check]) -> None:
        """Set the metrics of the readiness checks. Call this at each scrape."""
        for check in checks:
            self._check_ready.labels(check.name).set(check.ready)
            self._check_noted.labels(check.name).set(bool(check.note))

    def count_refused(self, status: int) -> None:
        """Count a request that was answered with an HTTP error."""
        self._refused.labels(str(status)).inc()

    def count_preview(self, result: PreviewResult) -> None:
        """Count a preview by its result."""
        self._previews.labels(result).inc()

    def count_image_lookup(self, found: bool) -> None:
        """Count an image look-up at a registry, which found the image or failed."""
        self._image_lookups.labels("found" if found else "failed").inc()
