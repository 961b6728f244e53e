"""What podsettle counts. Labels come from closed sets only."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics

from webhook.cluster.source import Check
from webhook.server.previewer import Result
from webhook.server.review_counts import ReviewCounts

# A second series per counter with the time of its creation: nobody asks for it, scrapes carry it.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        self.reviews = ReviewCounts()
        self.registry.register(self.reviews)
        self._refused = Counter(
            "podsettle_requests_refused",
            "Requests to /mutate that were not answered with a review, by HTTP status.",
            ["status"],
            registry=self.registry,
        )
        look_ups = Counter(
            "podsettle_image_lookups",
            "Times that a registry was asked what a tag or a digest stands for, by what came of "
            "it; what is remembered is not asked for.",
            ["result"],
            registry=self.registry,
        )
        self._found = look_ups.labels("found")
        self._failed = look_ups.labels("failed")
        self.stuck_dns_lookups = Gauge(
            "podsettle_dns_lookups_stuck",
            "Look-ups of registries' names that have been under way for more than 5 s: the name "
            "servers do not answer. Each holds a thread until the operating system gives up.",
            registry=self.registry,
        )
        self._refused_dns_lookups = Counter(
            "podsettle_dns_lookups_refused",
            "Look-ups of registries' names that were refused, because as many were under way as "
            "one namespace may have, or all namespaces together.",
            registry=self.registry,
        )
        self._previews = Counter(
            "podsettle_previews",
            "Requests to /preview whose body was read, by what came of them. deadline, memory and "
            "crashed: the process that makes previews was ended, or ended by itself.",
            ["result"],
            registry=self.registry,
        )
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
            "Requests that wait: for the rest of a body, a namespace, an image; and those of other "
            "routes. A review that needs no waiting is answered as it is read, and never counts.",
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

    def count_preview(self, result: Result) -> None:
        """Count what came of a preview."""
        self._previews.labels(result).inc()

    def count_look_up(self, found: bool) -> None:
        """Count a question to a registry."""
        (self._found if found else self._failed).inc()

    def count_refused_dns_lookup(self) -> None:
        """Count a registry's name that was not looked up."""
        self._refused_dns_lookups.inc()
