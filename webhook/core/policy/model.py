"""The model of a SettlePolicy, `podsettle.dev/v1alpha1`.

The CRD, the JSON Schema for editors and the validation errors all come from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    create_model,
)
from pydantic import model_validator as _model_validator
from pydantic_core import PydanticCustomError

from webhook.core.constants import DNS_SUBDOMAIN, LABEL_NAMESPACE_NAME
from webhook.core.policy.image_config import ImageConfigSettings
from webhook.core.policy.one_runtime_class import (
    check_one_runtime_class,
    one_runtime_class_rules,
)
from webhook.core.policy.selectors import LabelSelector
from webhook.core.policy.validation_errors import InvalidPolicyError, field_error, model_of
from webhook.core.remedies import REMEDIES
from webhook.core.types import StrictModel


def _add_remedy_rules(schema: dict[str, Any]) -> None:
    schema["minProperties"] = 1
    schema["x-kubernetes-validations"] = [
        {
            "rule": " || ".join(f"has(self.{remedy})" for remedy in schema["properties"]),
            "message": "no remedy is set: name at least one",
        },
        *one_runtime_class_rules(),
    ]


class _RemedyRules(StrictModel):
    """The rules on the remedies of a policy. `Remedies` adds a field for each remedy."""

    model_config = ConfigDict(json_schema_extra=_add_remedy_rules)

    @_model_validator(mode="after")
    def _check_remedies(self) -> Self:
        settings = self.settings()
        if not settings:
            for name, remedy in REMEDIES.items():
                if name in self.model_fields_set:
                    about = {"at": [name], "advice": _empty_advice(remedy.settings)}
                    raise PydanticCustomError("empty_remedy", "is empty; {advice}", about)
            raise PydanticCustomError("no_remedy", "no remedy is set: name at least one")
        check_one_runtime_class(settings)
        return self

    def settings(self) -> dict[str, Any]:
        """Return the settings of each remedy that is set, in the order of application."""
        by_name = {name: getattr(self, name) for name in REMEDIES}
        return {name: settings for name, settings in by_name.items() if settings is not None}


if TYPE_CHECKING:
    # mypy knows no fields that are made from the registry.
    Remedies: TypeAlias = _RemedyRules
else:
    Remedies = create_model(
        "Remedies",
        __base__=_RemedyRules,
        __doc__="The remedies of a policy. The policy does not apply a remedy that is left out.",
        __module__=__name__,
        **{
            remedy.name: (
                remedy.settings | None,
                Field(default=None, alias=remedy.name, description=remedy.description),
            )
            for remedy in REMEDIES.values()
        },
    )


def _empty_advice(settings: Any) -> str:
    """Return what to write in place of an empty value of a remedy with settings of this type."""
    model = model_of(settings)
    if model is None:
        return f"write {get_args(settings)[0]}"
    if any(field.is_required() for field in model.model_fields.values()):
        return "it has settings without a default"
    return "write {} for the defaults"


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

    def settings(self) -> dict[str, Any]:
        """Return the settings of each remedy that is set, in the order of application."""
        return self.remedies.settings()

    @property
    def named_namespaces(self) -> frozenset[str]:
        """The namespaces that `namespaceSelector` lists by name."""
        selector = self.namespace_selector
        return selector.listed_values(LABEL_NAMESPACE_NAME) if selector else frozenset()

    def runtime_classes(self) -> tuple[str, ...]:
        """Return the name of the remedies' RuntimeClass in a tuple, which may be empty.

        Validation allows only one class.
        """
        names = (REMEDIES[name].class_name(given) for name, given in self.settings().items())
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
            pattern=f"^{DNS_SUBDOMAIN}$",
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

    @property
    def precedence(self) -> tuple[int, str]:
        """The sort key by which earlier policies win: the priority, then the name."""
        return -self.spec.priority, self.metadata.name


def parse_policy(document: object) -> SettlePolicy:
    """Return the policy in a decoded document. Raise InvalidPolicyError with all its errors."""
    try:
        return SettlePolicy.model_validate(document)
    except ValidationError as error:
        raise InvalidPolicyError(
            tuple(field_error(detail, SettlePolicy) for detail in error.errors(include_url=False))
        ) from None
