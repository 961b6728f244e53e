"""The measurement of umounts: what its figures have to show, and what the page shows."""

from __future__ import annotations

import os
import platform

import pytest

from bench.format import COUNT
from bench.measurement import Measurement
from bench.node.umount_clock import UmountClock
from bench.node.umount_log import count_failures
from bench.node.umount_report import (
    CHART,
    FAILURES,
    GAP,
    LATE,
    LATE_SECONDS,
    PAGE,
    RESULTS,
    as_json,
    as_markdown,
    from_json,
    render_chart,
    seen_by_this_project,
    unproven,
)
from bench.report import fill_page
from bench.report_table import ReportTable
from tests.support.waiting import await_that

pytestmark = pytest.mark.lab

CLOCK_NANOSLEEP = {"aarch64": "115", "x86_64": "230"}


def table(
    gaps: tuple[float, ...], failures: tuple[float, ...], settled: tuple[float, ...]
) -> ReportTable:
    def row(seconds: tuple[float, ...], counts: tuple[float, ...]) -> dict[str, Measurement]:
        late = sum(each > LATE_SECONDS for each in seconds)
        return {
            GAP: Measurement(seconds, "s"),
            FAILURES: Measurement(counts, COUNT),
            LATE: Measurement((late,), COUNT),
        }

    rows = {"plain": row(gaps, failures), "plain, volatile": row(settled, (0.0,) * len(settled))}
    return ReportTable("slow-disk", "", rows)


def test_defect_is_proven_if_half_of_the_pods_hang_by_it_and_no_settled_pod_does() -> None:
    assert unproven(table((4.0, 25.0), (0.0, 1.0), (1.0, 1.2))) == []


@pytest.mark.parametrize(
    ("gaps", "failures", "settled", "missing"),
    [
        ((4.0, 5.0, 25.0), (0.0, 0.0, 1.0), (1.0,), "1 of 3 unsettled pods were late"),
        ((25.0, 25.0), (1.0, 0.0), (1.0,), "1 unsettled pods were late without a failure"),
        ((25.0, 25.0), (1.0, 1.0), (1.0, 11.0), "1 settled pods were late"),
    ],
    ids=["few pods hang", "a pod hangs by another cause", "a settled pod hangs"],
)
def test_defect_is_unproven_if(
    gaps: tuple[float, ...], failures: tuple[float, ...], settled: tuple[float, ...], missing: str
) -> None:
    (found,) = unproven(table(gaps, failures, settled))
    assert found.startswith(missing)


@pytest.mark.skipif(platform.machine() not in CLOCK_NANOSLEEP, reason="another processor")
def test_clock_counts_only_the_time_in_its_system_call() -> None:
    with (
        UmountClock.of(os.getpid()) as umount,
        UmountClock.of(os.getpid(), CLOCK_NANOSLEEP[platform.machine()]) as sleep,
    ):
        # This process sleeps between two tries.
        await_that(lambda: sleep.seconds > 0.1, "the time in the system call is counted")
    assert umount.seconds == 0


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


def test_figures_and_chart_of_the_page_are_those_of_the_results_file() -> None:
    results, environment = from_json(RESULTS.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert page == fill_page(page, as_markdown(results, environment), "umount")
    assert page == fill_page(page, seen_by_this_project(results, environment), "umount seen")
    assert CHART.read_text(encoding="utf-8") == render_chart(results)
    assert RESULTS.read_text(encoding="utf-8") == as_json(results, environment)
    assert unproven(results) == []
