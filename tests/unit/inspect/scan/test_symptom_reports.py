"""Tests of findings by workload, and of the timeline that is made from them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.factories import policy
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.snapshot import Snapshot
from webhook.inspect.findings import (
    MAX_LISTED,
    Answer,
    Area,
    Certainty,
    Evidence,
    Finding,
    Looked,
)
from webhook.inspect.object_readers import Areas
from webhook.inspect.scan.model import SymptomReport
from webhook.inspect.scan.report_parts import (
    MAX_BINS,
    Tally,
    bin_length,
    policy_needs,
    symptom_reports,
)

ID = "cri-o-9840"
NOW = datetime(2026, 11, 22, 10, tzinfo=UTC)


def finding(
    workload: str = "Job/nightly",
    seen: datetime | None = NOW,
    certainty: Certainty = Certainty.LIKELY,
) -> Finding:
    evidence = (Evidence(f"pod of {workload}", "exitCode", str(seen)),) * 2
    return Finding(ID, ID, "ci", workload, 1, certainty, "why", evidence, seen, seen, "do")


def all_read() -> Areas:
    areas = Areas()
    for name in ("pods", "nodes"):
        areas.record(Area(name, Looked.LOOKED_AT))
    return areas


def reported(tally: Tally) -> SymptomReport:
    return next(each for each in symptom_reports(tally, all_read(), 60, {}) if each.id == ID)


def test_findings_of_one_workload_are_counted_together() -> None:
    tally = Tally()
    for minutes in (5, 0, 9):
        tally.add(finding(seen=NOW + timedelta(minutes=minutes)))
    tally.add(finding(seen=None))
    (group,) = reported(tally).findings
    assert group.count == reported(tally).count == 4
    assert group.first_seen == NOW
    assert group.last_seen == NOW + timedelta(minutes=9)
    assert len(group.evidence) <= MAX_LISTED


def test_findings_of_different_certainty_stay_apart_and_the_most_certain_comes_first() -> None:
    tally = Tally()
    for certainty in (Certainty.POSSIBLE, Certainty.CERTAIN, Certainty.LIKELY, Certainty.POSSIBLE):
        tally.add(finding(certainty=certainty))
    found = [(each.certainty, each.count) for each in reported(tally).findings]
    assert found == [("certain", 1), ("likely", 1), ("possible", 2)]


def test_findings_at_too_many_workloads_are_counted_but_not_listed() -> None:
    tally = Tally(max_groups=3)
    for number in range(10):
        tally.add(finding(f"TaskRun/build-{number}"))
    tally.add(finding("TaskRun/build-0"))
    assert len(reported(tally).findings) == 3
    assert reported(tally).unlisted == 7
    assert reported(tally).count == 11


@given(st.lists(st.integers(0, 4_000_000_000), min_size=1, max_size=30))
def test_timeline_has_every_finding_in_a_bounded_number_of_parts(seconds: list[int]) -> None:
    tally = Tally()
    for each in seconds:
        tally.add(finding(seen=datetime.fromtimestamp(each, UTC)))
    length = bin_length(tally)
    report = next(each for each in symptom_reports(tally, all_read(), length, {}) if each.findings)
    begins = [part.begin.timestamp() for part in report.timeline]
    assert sum(part.count for part in report.timeline) == len(seconds)
    assert (max(begins) - min(begins)) / length < MAX_BINS
    assert all(any(0 <= each - begin < length for begin in begins) for each in seconds)


@pytest.mark.parametrize("looked", list(Looked))
def test_symptom_without_findings_is_none_only_if_its_areas_were_looked_at(looked: Looked) -> None:
    areas = all_read()
    areas.record(Area("pods", looked, "" if looked is Looked.LOOKED_AT else "a cause"))
    reports = {each.id: each for each in symptom_reports(Tally(), areas, 60, {})}
    answer = reports[ID].verdict.answer
    assert (answer is Answer.NONE) == (looked is Looked.LOOKED_AT)
    # Events were never listed.
    assert reports["crio-selinux-relabel"].verdict.answer is Answer.NOT_LOOKED_AT


def test_of_several_results_for_a_resource_the_worst_one_counts() -> None:
    areas = Areas()
    for looked in (Looked.LOOKED_AT, Looked.NOT_LOOKED_AT, Looked.PARTLY):
        areas.record(Area("events", looked, looked.value))
    assert areas["events"] == Area("events", Looked.NOT_LOOKED_AT, "not_looked_at")
    assert areas["pods"].looked is Looked.NOT_LOOKED_AT


def test_remedy_of_a_defect_that_no_release_cures_is_still_needed() -> None:
    policies = PolicySet([policy("gate", remedies={"kubeletGate": {}})])
    (need,) = policy_needs(Snapshot(policies=policies))
    assert (need.policy, need.remedy, need.status) == ("gate", "kubeletGate", "True")
    assert need.message == "no release that podsettle knows cures it"
