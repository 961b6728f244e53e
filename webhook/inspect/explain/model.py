"""The JSON form of an explanation, for `podsettle explain -o json`. The text is made from it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from pydantic import Field

from webhook.core.preview.model import PodPreview
from webhook.core.reasons import Reason
from webhook.core.types import CamelCaseModel
from webhook.inspect.findings import Certainty


class AppliedRemedy(CamelCaseModel):
    """A remedy that the pod's annotation `podsettle.dev/applied` names."""

    remedy: str
    policy: str
    purpose: str = Field(description="What the remedy is for. Empty if podsettle does not know it.")
    fields: list[str] = Field(description="The fields of the pod that the remedy has set.")
    today: str = Field(description="Why the remedy would not be applied today. Empty if it would.")


class LeftOut(CamelCaseModel):
    """A remedy that a policy wanted, and that the pod or one of its containers does not have."""

    reason: str = Field(description="A code, which may be one of another version of podsettle.")
    remedy: str
    container: str = Field(description="Empty if the reason is for the whole pod.")
    sentence: str = Field(description="The reason in a sentence.")


class ContainerExplanation(CamelCaseModel):
    """What podsettle did to one container."""

    name: str
    init: bool
    changes: list[str] = Field(description="Sentences. Empty if podsettle did not change it.")
    left_out: list[LeftOut]


class EventNote(CamelCaseModel):
    """An event of podsettle about the pod or its controller."""

    about: str = Field(description="The object of the event, such as `Job/build`.")
    reason: Reason
    message: str
    last_seen: datetime | None


class NodeNeed(CamelCaseModel):
    """Whether the nodes of the cluster still need a remedy of a policy."""

    policy: str
    remedy: str
    still_needed: Literal["True", "False", "Unknown"]
    sentence: str


class Unknown(CamelCaseModel):
    """Something that the explanation lacks because it could not be read."""

    what: str
    why: str
    right: str = Field(
        default="", description="The missing right. Empty if another cause is known."
    )
    command: str = Field(default="", description="The command that asks for the right.")


class PodSymptom(CamelCaseModel):
    """A symptom of a defect that a pod shows."""

    symptom: str = Field(description="The name of the symptom, as `podsettle scan` has it.")
    certainty: Certainty
    sentences: list[str]
    advice: str
    policy: str = Field(description="The policy that a scan proposes, as YAML. Empty if none.")
    page: str = Field(description="The address of the page about the symptom.")


Called: TypeAlias = Literal["True", "False", "Unknown"]
_CALLED = (
    "Whether the API server calls podsettle for a new pod. null if podsettle would do nothing, or "
    "if there is no API server."
)


class PodExplanation(CamelCaseModel):
    """What podsettle did to a pod, and what it would do today."""

    kind: Literal["Pod"] = "Pod"
    namespace: str
    name: str
    verdict: str = Field(description="The answer in a sentence.")
    summary: str = Field(description="The annotation `podsettle.dev/summary`.")
    applied: list[AppliedRemedy]
    left_out: list[LeftOut]
    containers: list[ContainerExplanation]
    events: list[EventNote]
    symptoms: list[PodSymptom]
    notes: list[str]
    today: PodPreview | None = Field(
        description="The decision on a new pod like this one, without the node and without the "
        "remedies in `applied`, as `podsettle preview` shows it. null if the policies or the "
        "labels of the namespace could not be read."
    )
    called: Called | None = Field(description=_CALLED)
    node: str = Field(description="Whether the pod's node has the defects. Empty if not known.")
    nodes: list[NodeNeed]
    unknown: list[Unknown]
    advice: list[str]


class PodGroup(CamelCaseModel):
    """Pods of a workload that tell the same."""

    state: str = Field(description="What podsettle did to these pods, in a sentence.")
    count: int
    examples: list[str] = Field(description="Names of at most three of the pods.")


class WorkloadExplanation(CamelCaseModel):
    """What podsettle would do to the next pod of a workload, and what it did to the others."""

    kind: str
    namespace: str
    name: str
    verdict: str
    notes: list[str]
    today: PodPreview | None
    called: Called | None = Field(description=_CALLED)
    pods: list[PodGroup]
    nodes: list[NodeNeed]
    events: list[EventNote]
    unknown: list[Unknown]
    advice: list[str]


class RemedySetting(CamelCaseModel):
    """A setting of a remedy."""

    name: str
    description: str


class CuredDefect(CamelCaseModel):
    """A defect that a remedy works around."""

    id: str
    title: str
    advice: str = Field(description="What is better than a remedy, or what else to know.")


class RemedyExplanation(CamelCaseModel):
    """What a remedy does."""

    remedy: str
    description: str
    defects: list[CuredDefect]
    node_configuration: str = Field(
        description="The command that prints the configuration that nodes need first, if any."
    )
    settings: list[RemedySetting] = Field(description="Empty if the setting is one value.")
    values: list[str] = Field(description="The values of the setting, if it is one value.")
    reasons: list[Reason] = Field(description="Why it may be left out, and what it warns of.")


class ReasonExplanation(CamelCaseModel):
    """What a reason code means."""

    reason: Reason
    meaning: str
    warns: bool = Field(description="Whether `kubectl` prints a warning with the reason.")
    remedies: list[str] = Field(description="The remedies that give the reason.")
    advice: str = Field(description="What the developer of the pod can do.")
    explanation: str = Field(description="The address of the explanation. Empty if not known.")
