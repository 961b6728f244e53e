"""What `podsettle explain` says, as JSON. The text consists of the fields that have a title."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webhook.core.preview.model import PodPreview
from webhook.core.reasons import Reason
from webhook.core.types import CamelCaseModel
from webhook.inspect.findings import Certainty


class AppliedRemedy(CamelCaseModel):
    """A remedy that the annotation `podsettle.dev/applied` names."""

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


class FoundSymptom(CamelCaseModel):
    """A symptom that `podsettle scan` finds in the pod, or in pods of the workload."""

    symptom: str = Field(description="The name of the symptom, as `podsettle scan` has it.")
    certainty: Certainty = Field(description="That of the most certain finding.")
    pods: int
    sentences: list[str]
    advice: str
    policy: str = Field(description="The policy that a scan proposes, as YAML. Empty if none.")
    page: str


class PodGroup(CamelCaseModel):
    """Pods of a workload to which podsettle did the same."""

    state: str = Field(description="What podsettle did to these pods, in a sentence.")
    count: int
    examples: list[str] = Field(description="Names of at most three of the pods.")


class NodeNeed(CamelCaseModel):
    """Whether the nodes of the cluster still need a remedy of a policy."""

    policy: str
    remedy: str
    status: Literal["True", "False", "Unknown"]
    message: str


class NotRead(CamelCaseModel):
    """The JSON form of an `Unread`, with what the explanation lacks or assumes without it."""

    what: str
    why: str
    right: str = Field(description="The missing right. Empty if another cause is known.")
    command: str = Field(description="The command that asks for the right, if one is missing.")


class Explanation(CamelCaseModel):
    """What podsettle did to a pod, or to the pods of a workload, and what it would do today."""

    kind: str
    namespace: str
    name: str
    verdict: str = Field(description="The answer in a sentence.")
    summary: str = Field(title="The pod says")
    applied: list[AppliedRemedy] = Field(title="Applied")
    left_out: list[LeftOut] = Field(title="Left out")
    containers: list[ContainerExplanation] = Field(title="Containers")
    pods: list[PodGroup] = Field(title="Its pods")
    symptoms: list[FoundSymptom] = Field(title="Symptoms")
    notes: list[str] = Field(title="Notes")
    called: Literal["True", "False", "Unknown"] | None
    """Whether the API server calls podsettle for a new pod that podsettle would change."""
    today: PodPreview | None = Field(title="The next pod")
    """The decision on it. None if the policies or the namespace could not be read."""
    nodes: list[NodeNeed] = Field(title="Nodes")
    node: str = Field(title="The pod's node")
    unknown: list[NotRead] = Field(title="Not known")
    advice: list[str] = Field(title="What you can do")


class CodeExplanation(CamelCaseModel):
    """What a reason code means."""

    reason: Reason
    meaning: str
    warns: bool = Field(title="Whether kubectl warns of it")
    remedies: list[str] = Field(title="Remedies that give it")
    advice: str = Field(title="What you can do")
    page: str = Field(title="More")


class WrapperExplanation(CamelCaseModel):
    """The script in front of a container's command."""

    wrapper: str
    description: str
    script: str = Field(description="The script as it stands in pods.")
    commented: str = Field(title="The script, with comments")
    page: str = Field(title="More")


class RemedyExplanation(CamelCaseModel):
    """What a remedy does."""

    remedy: str
    description: str
    defects: list[dict[str, str]] = Field(title="For")
    node_configuration: str = Field(title="Configure the nodes first")
    settings: list[dict[str, str]] = Field(title="Settings")
    values: list[str] = Field(title="Values", description="If the setting is one value.")
    reasons: list[Reason] = Field(title="Reasons that it gives")
