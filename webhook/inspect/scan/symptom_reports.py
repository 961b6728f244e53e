"""The part of a report about each symptom: the verdict, the findings, the advice, the timeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from msgspec.structs import replace

from webhook.core.cluster.nodes import Node
from webhook.inspect.findings import verdict
from webhook.inspect.paged import Areas
from webhook.inspect.scan import unsettled
from webhook.inspect.scan.advice import advice_for
from webhook.inspect.scan.grouped_findings import Tally
from webhook.inspect.scan.model import Bin, SymptomNode, SymptomReport
from webhook.inspect.scan.nodes import page_of, software_of
from webhook.inspect.scan.proposals import Proposal
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


def symptom_reports(
    tally: Tally,
    areas: Areas,
    bin_seconds: int,
    proposals: Mapping[str, Proposal],
    nodes: Iterable[Node] = (),
) -> tuple[SymptomReport, ...]:
    """Return a report for each symptom, and one for the pods that are not settled.

    `proposals` are the policies for symptoms, by the symptom's id.
    """
    software = {node.name: software_of(node) for node in nodes}
    reports = [
        _symptom_report(symptom, tally, areas, bin_seconds, proposals.get(symptom.id), software)
        for symptom in SYMPTOMS
    ]
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
            page=unsettled.PAGE,
            timeline=(),
            pods=tally.count(unsettled.ID),
            nodes=_nodes(tally, unsettled.ID, software),
        )
    )
    return tuple(reports)


def _symptom_report(
    symptom: Symptom,
    tally: Tally,
    areas: Areas,
    bin_seconds: int,
    proposal: Proposal | None,
    software: Mapping[str, tuple[str, str]],
) -> SymptomReport:
    findings, defect = tally.findings(symptom.id), symptom.defect
    preview = proposal.preview if proposal is not None else None
    advice = ""
    if findings:
        # The catalogue has no advice on a fault of configuration, but its first finding has.
        advice = advice_for(defect, preview) if defect is not None else findings[0].advice
    return SymptomReport(
        id=symptom.id,
        title=symptom.title,
        defect=defect.id if defect is not None else None,
        verdict=verdict(tally.count(symptom.id), [areas.named(name) for name in symptom.areas]),
        findings=findings,
        unlisted=tally.unlisted(symptom.id),
        advice=advice,
        policy=proposal.policy if proposal is not None else "",
        page=page_of(defect) if defect is not None else symptom.page,
        timeline=tuple(_timeline(tally, symptom.id, bin_seconds)),
        pods=preview.pods if preview is not None else tally.count(symptom.id),
        preview=preview,
        nodes=_nodes(tally, symptom.id, software),
    )


def _nodes(
    tally: Tally, symptom: str, software: Mapping[str, tuple[str, str]]
) -> tuple[SymptomNode, ...]:
    """Return the nodes with a symptom, each with its software."""
    found = []
    for node in tally.nodes(symptom):
        runtime, kubelet = software.get(node.name, ("", ""))
        found.append(replace(node, runtime=runtime, kubelet=kubelet))
    return tuple(found)


def _timeline(tally: Tally, symptom: str, bin_seconds: int) -> Iterator[Bin]:
    """Yield the parts of a timeline in which the symptom was seen."""
    counts: dict[int, int] = {}
    for time in tally.times(symptom):
        begin = time - time % bin_seconds
        counts[begin] = counts.get(begin, 0) + 1
    for begin in sorted(counts):
        yield Bin(datetime.fromtimestamp(begin, UTC), counts[begin])
