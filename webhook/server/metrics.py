"""What podsettle counts. Labels come from closed sets only."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from webhook.cluster.source import Check
from webhook.core.decision import Decision, Reason

# A second series per counter with the time of its creation: nobody asks for it, scrapes carry it.
disable_created_metrics()  # type: ignore[no-untyped-call]

_RARE = (Reason.OVERLOADED, Reason.DEADLINE_EXCEEDED, Reason.INTERNAL_ERROR)
"""What pods are left unsettled for by a fault of podsettle or on the way to it."""

BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    # Reviews that waited for a registry.
    *(1.0, 2.5, 5.0, 10.0, 15.0),
)
"""Seconds, up to the longest that a review takes."""


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        reviews = Counter(
            "podsettle_reviews",
            "Admission reviews answered, by what the answer does to the pod.",
            ["result"],
            registry=self.registry,
        )
        self._patched = reviews.labels("patched")
        self._unchanged = reviews.labels("unchanged")
        self._refused = Counter(
            "podsettle_requests_refused",
            "Requests to /mutate that were not answered with a review, by HTTP status.",
            ["status"],
            registry=self.registry,
        )
        self._outcomes = Counter(
            "podsettle_outcomes",
            "Reasons given, by remedy; no remedy where the reason holds for the whole pod.",
            ["remedy", "reason"],
            registry=self.registry,
        )
        self._outcome: dict[tuple[str, Reason], Callable[[], None]] = {}
        for reason in _RARE:
            # There before it happens, so that a rate sees the first time as well.
            self._outcomes.labels("", reason)
        look_ups = Counter(
            "podsettle_image_lookups",
            "Times that a registry was asked what a tag or a digest stands for, by what came of "
            "it; what is remembered is not asked for.",
            ["result"],
            registry=self.registry,
        )
        self._found = look_ups.labels("found")
        self._failed = look_ups.labels("failed")
        duration = Histogram(
            "podsettle_review_duration_seconds",
            "From the last byte of a review received to its answer made.",
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.observe_duration: Callable[[float], None] = duration.observe
        self.policies = Gauge("podsettle_policies", "Policies in force.", registry=self.registry)
        self.manifest_problems = Gauge(
            "podsettle_manifest_problems",
            "Things wrong with policies or manifests; what each last said stays in force.",
            registry=self.registry,
        )
        self.certificate_expiry = Gauge(
            "podsettle_certificate_expiry_timestamp_seconds",
            "When the certificate that is served expires, in seconds since 1970.",
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "podsettle_requests_in_flight",
            "Requests of any kind received and not answered yet.",
            registry=self.registry,
        )
        self._check_ready = Gauge(
            "podsettle_check_ready",
            "1 where a check of /readyz passes, else 0; `shutdown` is 0 while podsettle drains.",
            ["check"],
            registry=self.registry,
        )
        self._check_noted = Gauge(
            "podsettle_check_noted",
            "1 where a check of /readyz?verbose has something wrong to tell, else 0; with it, "
            "podsettle may well be ready: an API server that is gone is served on without.",
            ["check"],
            registry=self.registry,
        )
        build = Gauge("podsettle_build_info", "Always 1.", ["version"], registry=self.registry)
        build.labels(version).set(1)

    def set_checks(self, checks: Iterable[Check]) -> None:
        """Record what readiness goes by; for each scrape anew."""
        for check in checks:
            self._check_ready.labels(check.name).set(check.ready)
            self._check_noted.labels(check.name).set(bool(check.note))

    def count_refused(self, status: int) -> None:
        """Count a request that was not answered with a review."""
        self._refused.labels(str(status)).inc()

    def count_look_up(self, found: bool) -> None:
        """Count a question to a registry."""
        (self._found if found else self._failed).inc()

    def count(self, decision: Decision) -> None:
        """Count an answered review and the reasons in it."""
        (self._patched if decision.operations else self._unchanged).inc()
        for outcome in decision.outcomes:
            key = (outcome.remedy, outcome.reason)
            increment = self._outcome.get(key)
            if increment is None:
                increment = self._outcome[key] = self._outcomes.labels(*key).inc
            increment()
