"""What every model of a SettlePolicy shares: camelCase keys, strict types, no unknown keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """A part of a SettlePolicy. Unknown keys and wrong types are errors, never guesses."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=to_camel,
    )
