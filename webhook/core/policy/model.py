"""The model of a SettlePolicy, `podsettle.dev/v1alpha1`.

The CRD, the JSON Schema for editors and the validation errors all come from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic import model_validator as _model_validator
from pydantic_core import PydanticCustomError

from webhook.core.constants import KIND
from webhook.core.policy.errors import InvalidPolicyError, field_error, model_of
from webhook.core.policy.image_config import ImageConfigSettings
from webhook.core.policy.selectors import LabelSelector
from webhook.core.remedies import (
    kubelet_gate,
    post_init_sleep,
    retry_init_exit_255,
    runtime_class,
    selinux_change_policy,
    skip_selinux_relabel,
)
from webhook.core.remedies.base import Remedy
from webhook.core.remedies.kubelet_gate import KubeletGate
from webhook.core.remedies.post_init_sleep import PostInitSleep
from webhook.core.remedies.retry_init_exit_255 import RetryInitExit255
from webhook.core.remedies.runtime_class import RuntimeClassRemedy
from webhook.core.remedies.selinux_change_policy import SELinuxChangePolicy
from webhook.core.remedies.skip_selinux_relabel import SkipSELinuxRelabel
from webhook.core.types import StrictModel


def _add_remedy_rules(schema: dict[str, Any]) -> None:
    schema["minProperties"] = 1
    schema["x-kubernetes-validations"] = [
        {
            "rule": " || ".join(f"has(self.{remedy})" for remedy in schema["properties"]),
            "message": "no remedy is set: name at least one",
        },
        {
            "rule": "!has(self.runtimeClass) || !has(self.skipSELinuxRelabel)"
            " || !has(self.skipSELinuxRelabel.runtimeClassName)"
            " || self.skipSELinuxRelabel.runtimeClassName == self.runtimeClass.name",
            "message": "a pod has only one RuntimeClass: this differs from runtimeClass.name",
            "messageExpression": "'a pod has only one RuntimeClass: this is '"
            " + self.skipSELinuxRelabel.runtimeClassName"
            " + ', but runtimeClass.name is ' + self.runtimeClass.name",
            "fieldPath": ".skipSELinuxRelabel.runtimeClassName",
        },
    ]


class Remedies(StrictModel):
    """The remedies of a policy. The policy does not apply a remedy that is left out."""

    model_config = ConfigDict(json_schema_extra=_add_remedy_rules)

    runtime_class: RuntimeClassRemedy | None = Field(
        default=None, description="Run the pod under a RuntimeClass."
    )
    skip_selinux_relabel: SkipSELinuxRelabel | None = Field(
        default=None,
        alias="skipSELinuxRelabel",
        description="Let CRI-O skip the relabelling of a volume whose top directory already has "
        "the label.",
    )
    se_linux_change_policy: SELinuxChangePolicy | None = Field(
        default=None,
        description="Recursive: the pod's volumes are not mounted by Kubernetes 1.37's "
        "SELinuxMount. Needs an API server of 1.33 or later.",
    )
    post_init_sleep: PostInitSleep | None = Field(
        default=None,
        description="Keep containers that end quickly alive for longer. Otherwise CRI-O may "
        "report exit code 255 for them.",
    )
    retry_init_exit_255: RetryInitExit255 | None = Field(
        default=None,
        alias="retryInitExit255",
        description="Run named init containers again if they are reported to have ended with exit "
        "code 255. Only in pods whose restartPolicy is Never. Needs Kubernetes 1.35.",
    )
    kubelet_gate: KubeletGate | None = Field(
        default=None,
        description="Keep the pod Pending until its node's kubelet has a serving certificate. "
        "Then its log can be read from the beginning.",
    )

    @_model_validator(mode="after")
    def _check_remedies(self) -> Remedies:
        if all(getattr(self, name) is None for name in type(self).model_fields):
            for name in self.model_fields_set:
                field = type(self).model_fields[name]
                about = {"at": [field.alias or name], "advice": _empty_advice(field.annotation)}
                raise PydanticCustomError("empty_remedy", "is empty; {advice}", about)
            raise PydanticCustomError("no_remedy", "no remedy is set: name at least one")
        one = self.runtime_class.name if self.runtime_class else None
        other = self.skip_selinux_relabel and self.skip_selinux_relabel.runtime_class_name
        if one and other and one != other:
            raise PydanticCustomError(
                "two_classes",
                "a pod has only one RuntimeClass: this is {other}, but runtimeClass.name is {one}",
                {"one": one, "other": other, "at": ["skipSELinuxRelabel", "runtimeClassName"]},
            )
        return self


def _empty_advice(annotation: Any) -> str:
    """Return what to write in place of an empty value of a remedy with this annotation."""
    model = model_of(annotation)
    if model is None:
        return f"write {get_args(get_args(annotation)[0])[0]}"
    if any(field.is_required() for field in model.model_fields.values()):
        return "it has settings without a default"
    return "write {} for the defaults"


REMEDIES: dict[str, Remedy] = {
    # The order in which remedies are applied. runtimeClass comes before skipSELinuxRelabel, which
    # may set a class too.
    "runtimeClass": runtime_class.apply,
    "skipSELinuxRelabel": skip_selinux_relabel.apply,
    "seLinuxChangePolicy": selinux_change_policy.apply,
    "postInitSleep": post_init_sleep.apply,
    "retryInitExit255": retry_init_exit_255.apply,
    "kubeletGate": kubelet_gate.apply,
}
"""The function of every remedy, by its name in policies, annotations and metrics."""


class SettlePolicySpec(StrictModel):
    """The spec of a SettlePolicy."""

    description: str = Field(default="", description="What the policy is for, in a sentence.")
    priority: int = Field(
        default=0,
        ge=-(2**31),
        le=2**31 - 1,
        json_schema_extra={"format": "int32"},
        description="The policy with the higher priority wins. If priorities are equal, the first "
        "name in the alphabet wins.",
    )
    action: Literal["Mutate", "Audit"] = Field(
        default="Mutate",
        description="Mutate: apply the remedies. Audit: decide, count and report, but change "
        "nothing.",
    )
    namespace_selector: LabelSelector | None = Field(
        default=None,
        description="Namespaces that the policy covers. {} is every namespace. Omitted: only "
        "namespaces labelled podsettle.dev/policy with the policy's name.",
    )
    pod_selector: LabelSelector = Field(
        default=LabelSelector(), description="Pods that the policy covers. Omitted: every pod."
    )
    image_config: ImageConfigSettings = Field(
        default=ImageConfigSettings(),
        description="Whether and where podsettle looks up the entrypoints of images, for "
        "containers without command. Omitted: no look-ups.",
    )
    remedies: Remedies = Field(description="The remedies that the policy applies to its pods.")

    def settings(self) -> dict[str, StrictModel | str]:
        """Return the settings of each remedy that is set, in the order of application."""
        by_name = {
            field.alias or name: getattr(self.remedies, name)
            for name, field in Remedies.model_fields.items()
        }
        return {name: by_name[name] for name in REMEDIES if by_name[name] is not None}

    def runtime_classes(self) -> tuple[str, ...]:
        """Return the name of the remedies' RuntimeClass in a tuple, which may be empty.

        Validation allows only one class.
        """
        class_remedy = self.remedies.runtime_class
        relabel = self.remedies.skip_selinux_relabel
        names = (class_remedy and class_remedy.name, relabel and relabel.runtime_class_name)
        return tuple(dict.fromkeys(name for name in names if name))


class PolicyMetadata(BaseModel):
    """Object metadata. podsettle reads only the name; the API server validates the rest."""

    # Fields that are not read are not stored: managedFields are larger than most policies.
    model_config = ConfigDict(
        extra="ignore", frozen=True, json_schema_extra={"additionalProperties": True}
    )

    name: Annotated[
        str,
        StringConstraints(
            strict=True,
            max_length=63,  # A namespace opts in by a label, whose value is no longer than this.
            pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        ),
    ] = Field(description="The policy's name. Namespaces opt in by this name.")


class SettlePolicy(StrictModel):
    """Which pods podsettle changes, and how. An object in a cluster or a document in a file."""

    api_version: Literal["podsettle.dev/v1alpha1"] = Field(
        description="The version of this document's schema."
    )
    kind: Literal["SettlePolicy"] = Field(description="The kind of this document.")
    metadata: PolicyMetadata = Field(description="Name, labels and annotations of the policy.")
    spec: SettlePolicySpec = Field(description="Which pods the policy changes, and how.")
    status: dict[str, Any] | None = Field(default=None, exclude=True)


def is_policy(document: object) -> bool:
    """Return whether a document's kind is SettlePolicy. The version may be any."""
    return isinstance(document, Mapping) and document.get("kind") == KIND


def parse_policy(document: object) -> SettlePolicy:
    """Return the policy in a decoded document. Raise InvalidPolicyError with all its errors."""
    try:
        return SettlePolicy.model_validate(document)
    except ValidationError as error:
        raise InvalidPolicyError(
            tuple(field_error(detail, SettlePolicy) for detail in error.errors(include_url=False))
        ) from None
