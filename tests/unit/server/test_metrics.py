"""Counts of reviews and their reasons."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.core import CounterMetricFamily

from tests.support.defects import defect_document, entry
from tests.support.factories import node, policy, view
from webhook.core.admission.decision import Decision
from webhook.core.cluster.nodes import Node, Nodes
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.defects.defect import Defect, DefectStatus
from webhook.core.defects.versions import Runtime, Version
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import Outcome, Reason
from webhook.server.metrics import MAX_SETTLED_SERIES, Metrics, ReviewCounts
from webhook.server.still_needed_metric import NeededPolicies


def counted(counts: ReviewCounts) -> dict[tuple[str, str], float]:
    _, outcomes, _, _ = counts.collect()
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
    counts.count(Decision((Outcome(Reason.APPLIED),), policies), 0.001)
    assert not any(isinstance(found, Decision) for found in gc.get_referrers(policies))


def applied(policy: str, *remedies: str) -> Decision:
    outcomes = [Outcome(Reason.APPLIED, remedy, policy, "a", True) for remedy in remedies]
    return Decision((*outcomes, *outcomes), (policy,), patch=b"W10=")


def settled(counts: ReviewCounts) -> dict[tuple[str, str], float]:
    (family,) = (each for each in counts.collect() if each.name == "podsettle_settled_pods")
    return {(s.labels["policy"], s.labels["remedy"]): s.value for s in family.samples}


def test_settled_pod_counts_once_for_each_policy_and_remedy() -> None:
    counts = ReviewCounts()
    both = applied("p", "postInitSleep", "kubeletGate")
    for _ in range(3):
        counts.count(both, 0.001)
    counts.count(applied("q", "kubeletGate"), 0.001)
    assert settled(counts) == {
        ("p", "postInitSleep"): 3,
        ("p", "kubeletGate"): 3,
        ("q", "kubeletGate"): 1,
    }


def test_dry_runs_and_unchanged_pods_do_not_count_as_settled() -> None:
    counts = ReviewCounts()
    counts.count(applied("p", "postInitSleep"), 0.001, dry_run=True)
    unchanged = Decision((Outcome(Reason.ALREADY_SETTLED, "postInitSleep", "p", "a"),))
    counts.count(unchanged, 0.001)
    assert settled(counts) == {}


def test_policies_beyond_the_limit_are_counted_together() -> None:
    counts = ReviewCounts()
    for number in range(MAX_SETTLED_SERIES + 5):
        counts.count(applied(f"p{number}", "postInitSleep"), 0.001)
    counts.count(applied("p0", "postInitSleep"), 0.001)
    found = settled(counts)
    assert len(found) == MAX_SETTLED_SERIES + 1
    assert found["", "postInitSleep"] == 5
    assert found["p0", "postInitSleep"] == 2


def needed(metrics: Metrics, seen: Snapshot) -> dict[tuple[str, str], float]:
    asyncio.run(metrics.needed_policies.refresh(seen))
    (family,) = metrics.needed_policies.collect()
    return {(s.labels["policy"], s.labels["remedy"]): s.value for s in family.samples}


@pytest.mark.parametrize(
    ("runtimes", "expected"),
    [
        (["cri-o://1.33.12"], 1),
        (["cri-o://1.33.13", "cri-o://1.33.12"], 1),
        (["cri-o://unreadable"], 1),
        (["cri-o://1.33.13", ""], 1),
        # No node is known, so nothing is.
        ([], 1),
        (["cri-o://1.33.13", "containerd://2.1.5"], 0),
        # A fix is expected in all later releases. StillNeeded names these nodes.
        (["cri-o://1.99.0"], 0),
    ],
)
def test_policy_counts_as_needed_unless_every_node_is_free_of_the_defect(
    runtimes: list[str], expected: int
) -> None:
    nodes = [node(f"n{number}", runtime) for number, runtime in enumerate(runtimes)]
    incurable = {"postInitSleep": {}, "fsGroupChangePolicy": "OnRootMismatch"}
    seen = view(policy("cri-o"), policy("both", remedies=incurable), nodes=nodes)
    assert needed(Metrics("0"), seen) == {
        ("cri-o", "postInitSleep"): expected,
        ("both", "postInitSleep"): expected,
        ("both", "fsGroupChangePolicy"): 1,
    }


@pytest.mark.parametrize(
    "changed",
    [{}, {"nodes": Nodes()}, {"runtime_classes": {}}, {"policies": PolicySet()}],
    ids=list,
)
def test_needed_policies_are_computed_again_only_after_a_change_that_matters(
    changed: dict[str, Any],
) -> None:
    seen = view(policy(), nodes=[node()])
    metrics = Metrics("0")
    once = {("p", "postInitSleep"): 1}
    assert needed(metrics, seen) == once
    # A new computation sees this.
    seen.policies.documents = ()
    assert needed(metrics, replace(seen, **changed)) == ({} if changed else once)


async def test_reviews_are_answered_while_many_policies_are_judged() -> None:
    policies = [policy(f"p{number}") for number in range(10)]
    seen = view(*policies, nodes=[node()])
    refresh = asyncio.create_task(Metrics("0").needed_policies.refresh(seen))
    turns = 0
    while not refresh.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= len(policies)


def test_reviews_are_counted_while_another_thread_collects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts, add = ReviewCounts(), CounterMetricFamily.add_metric
    counts.count(applied("p", "skipSELinuxRelabel"), 0.001)
    reasons = iter(Reason)

    def count_and_add(family: CounterMetricFamily, *values: Any) -> None:
        reason = next(reasons)
        counts.count(applied(reason, reason), 0.001)
        add(family, *values)

    monkeypatch.setattr(CounterMetricFamily, "add_metric", count_and_add)
    assert len(list(counts.collect())) == 4


CLASSES = {"ci": RuntimeClassInfo("ci", "ci", {}, {"pool": "ci"})}
NODES = tuple(Node.read(f"n{n}", {"pool": "ci"}, "cri-o://1.33.12", "v1.33.1") for n in range(10))
asked: list[Runtime] = []


class CountingDefect(Defect):
    """Records each question."""

    def status_on(self, runtime: Runtime, kubelet: Version | None) -> DefectStatus:
        asked.append(runtime)
        return super().status_on(runtime, kubelet)


def judged_view(policies: int, remedies: dict[str, Any]) -> Snapshot:
    defect = CountingDefect.model_validate(defect_document(entry("1.33.13", newest="1.36.0")))
    nodes = Nodes(NODES, (defect,))
    documents = [policy(f"p{number}", remedies=remedies) for number in range(policies)]
    asked.clear()
    return Snapshot(policies=PolicySet(documents), nodes=nodes, runtime_classes=CLASSES)


def values(needed: NeededPolicies) -> set[tuple[str, float]]:
    (metric,) = needed.collect()
    return {(sample.labels["policy"], sample.value) for sample in metric.samples}


@pytest.mark.parametrize(
    "remedies",
    [{"postInitSleep": {}}, {"postInitSleep": {}, "runtimeClass": {"name": "ci"}}],
    ids=["all nodes", "nodes of a class"],
)
async def test_nodes_are_judged_once_for_many_policies(remedies: dict[str, Any]) -> None:
    counts = []
    for number in (1, 50):
        needed = NeededPolicies()
        await needed.refresh(judged_view(number, remedies))
        counts.append(len(asked))
        assert values(needed) == {(f"p{each}", 1.0) for each in range(number)}
    assert 0 < counts[0] <= len(NODES)
    assert counts[1] == counts[0]


async def test_concurrent_scrapes_share_one_computation() -> None:
    needed = NeededPolicies()
    await needed.refresh(judged_view(50, {"postInitSleep": {}}))
    once = len(asked)
    other = NeededPolicies()
    seen = judged_view(50, {"postInitSleep": {}})
    await asyncio.gather(*(other.refresh(seen) for _ in range(5)))
    assert len(asked) == once
    assert values(other) == values(needed)


async def test_cancelled_scrape_leaves_the_computation_to_the_next() -> None:
    needed = NeededPolicies()
    seen = judged_view(50, {"postInitSleep": {}})
    first = asyncio.create_task(needed.refresh(seen))
    await asyncio.sleep(0)
    first.cancel()
    await needed.refresh(seen)
    assert first.cancelled()
    assert len(values(needed)) == 50
