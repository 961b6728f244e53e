"""The type of JSON objects, and the base classes of models."""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

Json: TypeAlias = dict[str, Any]
"""An object of JSON or YAML, as decoded."""


class CamelCaseModel(BaseModel):
    """The base of models that are written as JSON with keys in camelCase."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class StrictModel(BaseModel):
    """The base of all parts of a SettlePolicy.

    Keys are in camelCase, types are strict, and an unknown key is an error.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=to_camel,
    )
