"""The settings of `imageConfig`: which registries podsettle may ask for image entrypoints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from webhook.core.images import LookupRules
from webhook.core.types import StrictModel, TextPattern

_PORT = "(:[0-9]{1,5})?"
_ADDRESS = r"\[[0-9a-f:.]{2,45}\]"
HOST_PATTERN = f"^([a-z0-9][-a-z0-9.]{{0,252}}|{_ADDRESS}){_PORT}$"
GLOB_PATTERN = rf"^([-a-z0-9.*]{{1,253}}|{_ADDRESS})(:([0-9]{{1,5}}|\*))?$"
MIRROR_PATTERN = HOST_PATTERN.replace("$", "(/[a-z0-9][-a-z0-9._/]{0,199})?$")

_HOST = TextPattern(HOST_PATTERN, "is not a registry: write it as registry.example or host:5000")
RegistryHost = Annotated[str, _HOST]
RegistryGlob = Annotated[
    str,
    TextPattern(
        GLOB_PATTERN, "can match no registry: write it as quay.io, *.example.com or host:5000", 300
    ),
]
Mirror = Annotated[
    str,
    TextPattern(MIRROR_PATTERN, "is not a mirror: write it as host, host:5000 or host/path", 500),
]

_MAX_ENTRIES = 100
"""The maximum number of registries, and of mirrors. It bounds the cost of the CRD's CEL rules."""

_NO_REGISTRY = "lookup: Registry needs registries or mirrors: podsettle asks no others"


class ImageConfigSettings(StrictModel):
    """Where podsettle looks up the entrypoints of images, for containers without `command`."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.lookup) || self.lookup != 'Registry'"
                    " || (has(self.registries) && size(self.registries) > 0)"
                    " || (has(self.mirrors) && size(self.mirrors) > 0)",
                    "message": _NO_REGISTRY,
                }
            ]
        }
    )

    lookup: Literal["Never", "Registry"] = Field(
        default="Never",
        description="Never: a container without command stays unchanged (NoCommand). Registry: "
        "podsettle asks the image's registry for its entrypoint, over HTTPS.",
    )
    registries: tuple[RegistryGlob, ...] = Field(
        default=(),
        strict=False,
        max_length=_MAX_ENTRIES,
        description="Registries that podsettle may ask: globs on the host, with the port if the "
        "images name one. docker.io is Docker Hub.",
    )
    mirrors: dict[RegistryHost, Mirror] = Field(
        default_factory=dict,
        max_length=_MAX_ENTRIES,
        description="Registries that podsettle asks instead of others. A mirror is a host, "
        "optionally with a path to put before the image's path. It needs no entry in registries.",
        json_schema_extra=_HOST.add_key_rules,
    )

    @model_validator(mode="after")
    def _names_a_registry(self) -> ImageConfigSettings:
        if self.lookup == "Registry" and not self.registries and not self.mirrors:
            raise PydanticCustomError("no_registry", _NO_REGISTRY)
        return self

    def __hash__(self) -> int:
        """Let pydantic share the default instead of copying it into every policy."""
        return hash((self.lookup, self.registries, frozenset(self.mirrors.items())))

    @property
    def rules(self) -> LookupRules | None:
        """The registries and mirrors in the form that decisions read. None: no look-ups."""
        if self.lookup == "Never":
            return None
        return LookupRules(self.registries, tuple(sorted(self.mirrors.items())))
