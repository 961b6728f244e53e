"""Tests of the measurement of umounts: its clock, its log, and what its figures have to show."""

from __future__ import annotations

import pytest

from lab.umount import Sample, count_failures, unproven

pytestmark = pytest.mark.lab


def sample(gap: float, failures: int = 0) -> Sample:
    return Sample("pod", 0.0, gap, 0.0, failures)


@pytest.mark.parametrize(
    ("plain", "settled", "missing"),
    [
        ([sample(4), sample(25, 1)], [sample(1)], []),
        (
            [sample(4), sample(5), sample(25, 1)],
            [sample(1)],
            ["1 of 3 unsettled pods were late: expected half of them"],
        ),
        (
            [sample(25, 1), sample(25)],
            [sample(1)],
            ["1 unsettled pods were late without a failure in containerd's log"],
        ),
        ([sample(25, 1)], [sample(11)], ["1 settled pods were late: expected none"]),
    ],
)
def test_defect_is_proven_if_half_of_the_pods_hang_by_it_and_no_settled_pod_does(
    plain: list[Sample], settled: list[Sample], missing: list[str]
) -> None:
    assert unproven(plain, settled) == missing


FIRST = (
    'level=error msg="failed to handle container TaskExit event container_id:\\"c1\\" id:\\"c1\\"" '
    'error="failed to stop container: failed to delete task: context deadline exceeded"'
)
RETRY = (
    'level=error msg="Failed to handle backOff event container_id:\\"c1\\" id:\\"c1\\" for c1" '
    'error="failed to handle container TaskExit event: {}: context deadline exceeded"'
)


@pytest.mark.parametrize(
    "retry",
    ["failed to stop container: failed to delete task", "failed to load task for container"],
    ids=["of containerd 2.2", "of containerd 2.3"],
)
def test_first_attempt_and_each_retry_count_as_failures_of_their_container(retry: str) -> None:
    deletion = 'level=error msg="failed to delete task" error="context deadline exceeded" id=c1'
    attempts = [deletion, FIRST, RETRY.format(retry), RETRY.format(retry)]
    other = FIRST.replace("c1", "c2")
    refused = RETRY.format(retry).replace("context deadline exceeded", "unavailable")
    assert count_failures("\n".join([*attempts, other, refused]), "c1") == 3
