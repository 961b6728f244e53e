"""The AdmissionReview of Kubernetes as pydantic models, for the OpenAPI document only.

`webhook.core.admission` decodes and encodes reviews without these models, because they take longer
than a decision, and because podsettle answers reviews that do not match them.
Fields: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from webhook.core.types import CamelCaseModel


class GroupVersionResource(CamelCaseModel):
    """A kind of resource of the Kubernetes API."""

    group: str = Field(examples=[""])
    version: str = Field(examples=["v1"])
    resource: str = Field(examples=["pods"])


class AdmissionRequest(CamelCaseModel):
    """The fields that podsettle reads of a request. It ignores all others."""

    uid: str = Field(examples=["705ab4f5-6393-11e8-b7cc-42010a800002"])
    resource: GroupVersionResource | None = None
    sub_resource: str | None = None
    namespace: str | None = Field(None, examples=["ci"])
    operation: str | None = Field(None, examples=["CREATE"])
    object: dict[str, Any] | None = Field(None, description="The pod.")


class AdmissionResponse(CamelCaseModel):
    """The answer to a request."""

    uid: str = Field(description="The uid of the request.")
    allowed: Literal[True] = Field(description="podsettle allows every pod.")
    patch_type: Literal["JSONPatch"] | None = Field(None, description="Present with a `patch`.")
    patch: str | None = Field(
        None,
        description="A JSON Patch (RFC 6902) in base64. Without it, the pod stays unchanged.",
    )
    warnings: list[str] | None = Field(
        None, description="Reasons that a person should act on. `kubectl` prints them."
    )
    audit_annotations: dict[str, str] | None = Field(
        None, description="All reasons, for the API server's audit log."
    )


class AdmissionReview(CamelCaseModel):
    """A request from the API server, or the answer to it."""

    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: AdmissionRequest | None = Field(None, description="Required in a request.")
    response: AdmissionResponse | None = Field(None, description="Present in an answer.")
