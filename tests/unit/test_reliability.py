"""Tests of what `make soak` and `make faults` conclude from their measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.result import Result
from tests.soak.samples import Sample, growth
from tests.support.every_remedy import EVERY_REMEDY, RUNTIME_CLASS, every_remedy_pod
from tests.support.factories import decide_pod, policy, view
from tests.support.pod_load import Creation
from webhook.core.defects.versions import Version
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES


def soaked(memory: float = 0, tasks: float = 0) -> list[Sample]:
    """Return the samples of an hour in which figures rise by so much a minute, and flutter."""
    return [
        Sample(m, 80 + m * memory + m % 3, 30 + m % 2, 12, round(20 + m * tasks), 3000, 5, 9)
        for m in range(10, 61)
    ]


def test_soak_fails_by_growth_of_memory_or_tasks_and_not_by_a_short_peak() -> None:
    assert growth(soaked()) == []
    (found,) = growth(soaked(memory=0.2))
    assert found.startswith("memory grows by 1.9")
    (found,) = growth(soaked(tasks=0.1))
    assert found == "tasks grow: at least 21 in the first third, 24 in the last"
    samples = soaked()
    samples[-5] = replace(samples[-5], descriptors=200)
    assert growth(samples) == []


LOST = [
    Creation(9.0, 0.1, failed=False, settled=True),
    Creation(11.0, 0.1, failed=False, settled=False),
    Creation(12.0, 0.1, failed=True, settled=False),
    Creation(30.0, 0.1, failed=False, settled=False),
]


@pytest.mark.parametrize(
    ("policy", "affected", "explained", "beyond"),
    [
        # The refused pod of Ignore is never explained.
        ("Ignore", (10.0, 15.0), 1, ["refused +2.00", "unsettled +20.00"]),
        ("Fail", (10.0, 15.0), 2, ["unsettled +20.00"]),
        ("Fail", None, 0, ["unsettled +1.00", "refused +2.00", "unsettled +20.00"]),
    ],
)
def test_fault_explains_only_what_it_may_affect(
    policy: str, affected: tuple[float, float] | None, explained: int, beyond: list[str]
) -> None:
    result = Result("sigkill", "", policy)
    result.count(LOST, (10.0, 20.0), affected)
    assert (result.created, result.failed, result.unsettled) == ([1, 1, 1], [0, 1, 0], [0, 1, 1])
    assert result.explained == explained
    assert [text.partition(" s from")[0] for text in result.beyond] == beyond


def test_fault_after_which_nothing_is_normal_again_fails() -> None:
    result = Result("sigkill", "", "Ignore")
    assert result.is_bad
    result.normal_seconds = 3.0
    assert not result.is_bad


def test_every_remedy_applies_to_the_pods_of_both() -> None:
    known = {"metadata": {"name": RUNTIME_CLASS}, "handler": RUNTIME_CLASS}
    seen = view(policy(remedies=EVERY_REMEDY), classes=[known], server=Version(1, 37))
    outcomes = decide_pod(every_remedy_pod("pod", "ci"), seen).outcomes
    applied = {each.remedy for each in outcomes if each.reason is Reason.APPLIED}
    assert applied == REMEDIES.keys(), "EVERY_REMEDY has to have each of them"
