"""The report of a scan. Its JSON form is that of `podsettle scan -o json`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from webhook.core.defects.defect import DefectStatus
from webhook.core.printable import printable_json
from webhook.inspect.findings import Area, Finding, Verdict


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """The base of all parts of a report."""


class NodeDefect(_Part, frozen=True):
    """Whether nodes with one runtime and kubelet have a defect."""

    defect: str
    status: DefectStatus
    cured_by: str
    """The release that cures the nodes, such as `CRI-O 1.33.13`. Empty if there is none."""


class NodeGroup(_Part, frozen=True):
    """The nodes with one runtime and kubelet."""

    runtime: str
    kubelet: str
    count: int
    names: tuple[str, ...]
    """The first names in the alphabet."""
    defects: tuple[NodeDefect, ...]


class DefectNodes(_Part, frozen=True):
    """The numbers of nodes by what they have of one defect."""

    defect: str
    title: str
    affected: int
    partly: int
    not_affected: int
    unverified: int
    remedies: tuple[str, ...]
    policies: tuple[str, ...]
    """The policies that have a remedy for the defect, for whichever pods."""
    page: str

    @property
    def total(self) -> int:
        """The number of all nodes."""
        return self.affected + self.partly + self.not_affected + self.unverified


class PolicyNeed(_Part, frozen=True):
    """Whether the nodes still need a remedy of a policy."""

    policy: str
    remedy: str
    status: str
    message: str
    """A clause that names the nodes because of which the remedy is needed."""


class Bin(_Part, frozen=True):
    """The number of times that a symptom was seen in a part of the timeline."""

    begin: datetime
    count: int


class SymptomReport(_Part, frozen=True):
    """A symptom, where it was found, and what to do."""

    id: str
    title: str
    defect: str | None
    verdict: Verdict
    findings: tuple[Finding, ...]
    unlisted: int
    """The number of times that the symptom was found at workloads that are not listed."""
    advice: str
    policy: str
    """A policy that helps, as YAML. Empty if there is none."""
    page: str
    timeline: tuple[Bin, ...]


class ScanReport(_Part, frozen=True):
    """Everything that a scan found, and what it looked at."""

    cluster: str
    namespace: str | None
    """The namespace of the pods. None: all namespaces."""
    scanned_at: datetime
    server_version: str
    pods: int
    """The number of pods that were looked at."""
    areas: tuple[Area, ...]
    nodes: tuple[NodeGroup, ...]
    defects: tuple[DefectNodes, ...]
    needs: tuple[PolicyNeed, ...]
    symptoms: tuple[SymptomReport, ...]
    bin_seconds: int
    """The length of each part of the timelines."""
    notes: tuple[str, ...]

    @property
    def found(self) -> bool:
        """Whether a symptom was found."""
        return any(symptom.findings for symptom in self.symptoms)


def to_json(report: ScanReport) -> str:
    """Return a report as JSON."""
    text = msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
    return f"{printable_json(text)}\n"
