"""The JSON form of a preview, for `POST /preview`, the page and `podsettle preview -o`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from webhook.core.policy.policy_matches import MAX_MATCHES, PolicyMatch
from webhook.core.preview.pods_in_document import ObjectWithoutPod
from webhook.core.reasons import Reason
from webhook.core.types import CamelCaseModel


class PreviewOutcome(CamelCaseModel):
    """Why a remedy was or was not applied to the pod or to one of its containers."""

    reason: Reason
    remedy: str = Field(description="Empty if the reason is for the whole pod.")
    policy: str
    container: str = Field(description="Empty if the reason is for the whole pod.")
    changed: bool = Field(description="Whether the patch contains a change for this outcome.")
    warns: bool = Field(description="Whether the operator should act on it.")
    message: str = Field(description="The explanation of the reason, in a sentence.")
    meaning: str = Field(description="What the reason means for any pod.")
    explanation: str | None = Field(
        description="The address of the reason's explanation. Null if the operator has set none."
    )


class PodPreview(CamelCaseModel):
    """The decision on one pod, and the pod before and after the patch."""

    kind: str = Field(description="The kind of the object that is the pod or would create it.")
    name: str
    namespace: str
    path: str = Field(description="The pod's path in the document. Empty for a Pod.")
    namespace_known: bool = Field(
        description="Whether the namespace exists in the cluster or in the manifests."
    )
    summary: str = Field(description="The decision in one sentence.")
    notes: list[str] = Field(description="What the preview assumes.")
    policies: list[str] = Field(description="Policies that cover the pod. The first one wins.")
    policy_matches: list[PolicyMatch] = Field(
        description="What each policy does about the pod, at most "
        f"{MAX_MATCHES} policies. Empty if the namespace is unknown."
    )
    outcomes: list[PreviewOutcome]
    warnings: list[str] = Field(description="The warnings that `kubectl` would print.")
    patch: list[dict[str, Any]] = Field(description="The JSON Patch (RFC 6902) for the API server.")
    before: dict[str, Any]
    after: dict[str, Any]
    diff: str = Field(description="Unified diff of the pod as YAML. Empty if nothing changes.")


class PreviewAnswer(CamelCaseModel):
    """The answer to a preview: one entry per object, in the order of the documents."""

    pods: list[PodPreview]
    passed_over: list[ObjectWithoutPod] = Field(
        description="Objects that have no pod, or none that podsettle can find."
    )
    unreadable: list[ObjectWithoutPod] = Field(
        description="Objects that cannot be read: without a kind, without the pod template of "
        "their kind, or with a pod template at a path that podsettle does not know."
    )
