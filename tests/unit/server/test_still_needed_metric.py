"""The gauge of needed policies: what it costs, and what concurrent scrapes share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.defects import defect_document, entry
from tests.support.factories import policy
from webhook.core.cluster.nodes import Node, Nodes
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.defects.defect import Defect, DefectStatus
from webhook.core.defects.versions import Runtime, Version
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.snapshot import Snapshot
from webhook.server.still_needed_metric import NeededPolicies

CLASSES = {"ci": RuntimeClassInfo("ci", "ci", {}, {"pool": "ci"})}
NODES = tuple(Node.read(f"n{n}", {"pool": "ci"}, "cri-o://1.33.12", "v1.33.1") for n in range(10))
asked: list[Runtime] = []


class CountingDefect(Defect):
    """Records each question."""

    def status_on(self, runtime: Runtime, kubelet: Version | None) -> DefectStatus:
        asked.append(runtime)
        return super().status_on(runtime, kubelet)


def view(policies: int, remedies: dict[str, Any]) -> Snapshot:
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
        await needed.refresh(view(number, remedies))
        counts.append(len(asked))
        assert values(needed) == {(f"p{each}", 1.0) for each in range(number)}
    assert 0 < counts[0] <= len(NODES)
    assert counts[1] == counts[0]


async def test_concurrent_scrapes_share_one_computation() -> None:
    needed = NeededPolicies()
    await needed.refresh(view(50, {"postInitSleep": {}}))
    once = len(asked)
    other = NeededPolicies()
    seen = view(50, {"postInitSleep": {}})
    await asyncio.gather(*(other.refresh(seen) for _ in range(5)))
    assert len(asked) == once
    assert values(other) == values(needed)


async def test_cancelled_scrape_leaves_the_computation_to_the_next() -> None:
    needed = NeededPolicies()
    seen = view(50, {"postInitSleep": {}})
    first = asyncio.create_task(needed.refresh(seen))
    await asyncio.sleep(0)
    first.cancel()
    await needed.refresh(seen)
    assert first.cancelled()
    assert len(values(needed)) == 50
