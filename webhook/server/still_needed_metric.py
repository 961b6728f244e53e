"""The metric that says which policies can be removed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.still_needed import all_nodes, remedy_needs

log = logging.getLogger(__name__)


class NeededPolicies(Collector):
    """The gauge `podsettle_policy_still_needed`. Call `refresh` before a scrape."""

    def __init__(self) -> None:
        self._refreshing = asyncio.Lock()
        self._judged: tuple[object, ...] = ()
        """What the values were computed from."""
        self._needed: dict[tuple[str, str], bool] = {}

    async def refresh(self, view: Snapshot) -> None:
        """Compute the values again if the cluster changed.

        Reviews are answered between two policies. Concurrent scrapes share one computation.
        """
        async with self._refreshing:
            judged = (view.nodes, view.policies, view.runtime_classes)
            # Compared by identity, because two sets of thousands of nodes take long to compare.
            if self._judged and all(a is b for a, b in zip(judged, self._judged, strict=True)):
                return
            try:
                self._needed = await _needed(view)
            except Exception:
                # A scrape without the other metrics would hide the failure itself.
                log.exception("internal error: podsettle_policy_still_needed is missing")
                self._needed = {}
            self._judged = judged

    def collect(self) -> Iterator[Metric]:
        """Yield the metric for a scrape."""
        needed = GaugeMetricFamily(
            "podsettle_policy_still_needed",
            "0 if no node has the defects that the policy's remedy cures, else 1. A release that "
            "is later than those that podsettle knows counts as free of them. It is 1 if podsettle "
            "knows no node or not the runtime of each node, and for a remedy that no release makes "
            "unnecessary.",
            labels=["policy", "remedy"],
        )
        for labels, value in self._needed.items():
            needed.add_metric(labels, value)
        yield needed


async def _needed(view: Snapshot) -> dict[tuple[str, str], bool]:
    """Return whether each remedy of each policy is needed."""
    nodes = all_nodes(view)
    needed = {}
    for policy in view.policies.documents:
        for remedy, need in remedy_needs(policy, nodes).items():
            needed[policy.metadata.name, remedy] = need is None or need.status != "False"
        await asyncio.sleep(0)
    return needed
