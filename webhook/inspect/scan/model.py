"""The report of a scan. Its JSON form is that of `podsettle scan -o json`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import msgspec

from webhook.core.printable import count_of
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.inspect.findings import Area, Certainty, Finding, Verdict

POSSIBLE = "possible"
"""The status of nodes whose releases have a defect that also needs a certain configuration."""
CLASSES_UNKNOWN = "no RuntimeClass could be read, so each one counts as missing"
NODES_LACK_A_CLASS = (
    f"{Reason.RUNTIME_CLASS_MISSING}:",
    f"{Reason.RUNTIME_CLASS_UNHANDLED}:",
    CLASSES_UNKNOWN,
)
"""How the reasons begin that end when the nodes are configured."""


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """The base of all parts of a report."""


class NodeDefect(_Part, frozen=True):
    """Whether nodes with one runtime and kubelet have a defect."""

    defect: str
    status: str
    """The value of a DefectStatus, or POSSIBLE."""
    cured_by: str
    """The release that cures the nodes, such as `CRI-O 1.33.13`. Empty if there is none."""


class NodeGroup(_Part, frozen=True):
    """The nodes with one runtime and kubelet."""

    runtime: str
    kubelet: str
    count: int
    names: tuple[str, ...]
    """The names in alphabetical order."""
    defects: tuple[NodeDefect, ...]


class DefectNodes(_Part, frozen=True):
    """The numbers of nodes by what they have of one defect."""

    defect: str
    title: str
    affected: int
    possible: int
    """The number of nodes that have the defect only with a configuration that no Node shows."""
    partly: int
    not_affected: int
    unverified: int
    remedies: tuple[str, ...]
    policies: tuple[str, ...]
    """The policies in force that cure the defect in pods that the scan found with it."""
    page: str
    requires: str = ""
    """The configuration without which no node has the defect. Empty if there is none."""

    @property
    def total(self) -> int:
        """The number of all nodes."""
        return self.affected + self.possible + self.partly + self.not_affected + self.unverified

    @property
    def is_certain(self) -> bool:
        """Whether a node has the defect with any configuration."""
        return bool(self.affected + self.partly) and not self.requires


@dataclass(frozen=True)
class PolicyNeed:
    """Whether the nodes still need a remedy of a policy. Explanations show it, too."""

    policy: str
    remedy: str
    status: Literal["True", "False", "Unknown"]
    message: str
    """A clause that names the nodes because of which the remedy is needed."""


class Bin(_Part, frozen=True):
    """The number of times that a symptom was seen in a part of the timeline."""

    begin: datetime
    count: int


class PodCount(_Part, frozen=True):
    """A number of pods, and what they have in common."""

    text: str
    pods: int


class PolicyPreview(_Part, frozen=True, kw_only=True):
    """What a proposed policy would do to the next pods of the workloads that were found."""

    remedy: str
    pods: int
    """The number of pods with the symptom."""
    changes: int = 0
    """How many of them the policy would change."""
    in_force: tuple[PodCount, ...] = ()
    """The names of policies in force that change pods like these already."""
    unchanged: tuple[PodCount, ...] = ()
    """Why the other pods would stay as they are."""
    is_audited: bool = False
    """Whether a policy of this name with `action: Audit` is in force already."""
    warning: str = ""
    """Why changed pods would stay Pending, as a clause. Empty if no reason is known."""

    @property
    def phrase(self) -> str:
        """What the policy does, as `changes 12 of the 12 pods found`."""
        return f"changes {self.changes} of the {count_of(self.pods, 'pod')} found"

    @property
    def node_configuration(self) -> str:
        """The command that configures nodes for the remedy. Empty if pods need no other nodes."""
        lacked = any(each.text.startswith(NODES_LACK_A_CLASS) for each in self.unchanged)
        return REMEDIES[self.remedy].node_configuration if lacked and not self.in_force else ""

    @property
    def sentences(self) -> list[str]:
        """What policies do for the pods that were found."""
        sentences = [
            f"Policy {name} settles new pods like these already ({count_of(pods, 'pod')})."
            for name, pods in ((each.text, each.pods) for each in self.in_force)
        ]
        if self.changes and self.is_audited:
            sentences.append(
                f"A policy with {self.remedy} is in the cluster already. It {self.phrase}, once "
                "you delete `action: Audit` there."
            )
        elif self.changes:
            sentences.append(f"The proposed policy has {self.remedy}, and {self.phrase}.")
        if self.warning:
            sentences.append(f"{self.warning.rstrip('.')}.")
        subject = "It leaves" if self.changes else f"A policy with {self.remedy} would leave"
        return sentences + [
            f"{subject} {count_of(each.pods, 'pod')} unchanged: {each.text.rstrip('.')}."
            for each in self.unchanged
        ]


class SymptomNode(_Part, frozen=True):
    """A node with pods that have a symptom."""

    name: str
    runtime: str
    kubelet: str
    """Both are empty if the node is gone, or could not be read."""
    count: int
    """The number of times that the symptom was found there."""
    certainty: Certainty
    """The certainty of the most certain of these findings."""
    last_seen: datetime | None

    @property
    def title(self) -> str:
        """The name and the runtime, such as `worker-1 (cri-o 1.33.12)`."""
        return f"{self.name} ({self.runtime})" if self.runtime else self.name


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
    """A policy that helps, as YAML. Empty if there is none that changes a pod."""
    page: str
    """The address of the page about the symptom, in the documentation of podsettle."""
    timeline: tuple[Bin, ...]
    pods: int = 0
    """The number of pods with the symptom."""
    preview: PolicyPreview | None = None
    """What a policy would do. None if podsettle has no remedy for the symptom."""
    nodes: tuple[SymptomNode, ...] = ()
    """The nodes of these pods. The one with the most findings comes first."""

    @property
    def count(self) -> int:
        """How many times the symptom was found."""
        return sum(finding.count for finding in self.findings) + self.unlisted


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
    command: str = "podsettle scan"
    """The command that makes this scan again."""
    apply_command: str = "podsettle scan -o policy | kubectl create -f -"
    """The command that creates the proposed policies."""

    @property
    def found(self) -> bool:
        """Whether a symptom was found."""
        return any(symptom.findings for symptom in self.symptoms)
