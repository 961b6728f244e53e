"""The part of a report about each symptom: the verdict, the findings, the advice, the timeline."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from webhook.inspect.findings import verdict
from webhook.inspect.paged import Areas
from webhook.inspect.scan import unsettled
from webhook.inspect.scan.advice import advice_for, policy_for, proposed_remedy
from webhook.inspect.scan.grouped_findings import Tally
from webhook.inspect.scan.model import Bin, SymptomReport
from webhook.inspect.scan.symptoms import SYMPTOMS
from webhook.inspect.scan.symptoms.base import Symptom

MAX_BINS = 48
"""The maximum number of parts of a timeline, because people look at them side by side."""
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_BIN_SECONDS = (
    _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 3 * _HOUR, 6 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY,
)  # fmt: skip


def bin_length(tally: Tally) -> int:
    """Return the length of the parts of all timelines, in seconds."""
    times = [time for symptom in SYMPTOMS for time in tally.times(symptom.id)]
    span = max(times) - min(times) if times else 0
    # One part more than the quotient, because the first part begins before the first time.
    fitting = (length for length in _BIN_SECONDS if span // length + 2 <= MAX_BINS)
    return next(fitting, (span // (MAX_BINS - 2) // _DAY + 1) * _DAY)


def symptom_reports(tally: Tally, areas: Areas, bin_seconds: int) -> tuple[SymptomReport, ...]:
    """Return a report for each symptom, and one for the pods that are not settled."""
    reports = [_symptom_report(symptom, tally, areas, bin_seconds) for symptom in SYMPTOMS]
    unsettled_findings = tally.findings(unsettled.ID)
    unsettled_areas = [areas.named(name) for name in unsettled.AREAS]
    unsettled_areas += [area for area in areas.all if area.name == unsettled.DECISIONS]
    reports.append(
        SymptomReport(
            id=unsettled.ID,
            title=unsettled.TITLE,
            defect=None,
            verdict=verdict(tally.count(unsettled.ID), unsettled_areas),
            findings=unsettled_findings,
            unlisted=tally.unlisted(unsettled.ID),
            advice=unsettled.advice_for(unsettled_findings),
            policy="",
            page="",
            timeline=(),
        )
    )
    return tuple(reports)


def _symptom_report(
    symptom: Symptom, tally: Tally, areas: Areas, bin_seconds: int
) -> SymptomReport:
    findings, defect = tally.findings(symptom.id), symptom.defect
    advice = policy = ""
    if findings and defect is not None:
        namespaces = {finding.namespace for finding in findings}
        advice = advice_for(defect, len(namespaces))
        remedy = proposed_remedy(defect)
        if remedy is not None:
            policy = policy_for(remedy, namespaces)
    return SymptomReport(
        id=symptom.id,
        title=symptom.title,
        defect=defect.id if defect is not None else None,
        verdict=verdict(tally.count(symptom.id), [areas.named(name) for name in symptom.areas]),
        findings=findings,
        unlisted=tally.unlisted(symptom.id),
        advice=advice,
        policy=policy,
        page=(defect.page or "") if defect is not None else "",
        timeline=tuple(_timeline(tally, symptom.id, bin_seconds)),
    )


def _timeline(tally: Tally, symptom: str, bin_seconds: int) -> Iterator[Bin]:
    """Yield the parts of a timeline in which the symptom was seen."""
    counts: dict[int, int] = {}
    for time in tally.times(symptom):
        begin = time - time % bin_seconds
        counts[begin] = counts.get(begin, 0) + 1
    for begin in sorted(counts):
        yield Bin(datetime.fromtimestamp(begin, UTC), counts[begin])
