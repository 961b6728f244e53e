"""The type of JSON objects, the base classes of models, and the texts in their fields."""

from __future__ import annotations

import re
from typing import Any, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

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


class TextPattern:
    """Metadata of a text: the pattern that the whole text matches, for validation and the schema.

    StringConstraints would not say in its errors what a text should look like.
    """

    def __init__(self, pattern: str, problem: str, max_length: int | None = None) -> None:
        """`problem` follows the text in the error, such as `is not a label key`."""
        self._fullmatch = re.compile(pattern, re.ASCII).fullmatch
        self._problem = problem
        self._max_length = max_length
        self._schema: Json = {"type": "string", "pattern": pattern}
        if max_length is not None:
            self._schema["maxLength"] = max_length

    def matches(self, text: str) -> bool:
        """Return whether a text has the length and the form."""
        fits = self._max_length is None or len(text) <= self._max_length
        return fits and self._fullmatch(text) is not None

    def check(self, text: str) -> str:
        """Return the text. Raise ValueError if it does not match."""
        if not self.matches(text):
            raise ValueError(f"{text!r} {self._problem}")
        return text

    def add_key_rules(self, schema: Json) -> None:
        """Add the CEL rules of a mapping with such keys and texts as values to its schema.

        Without `nullable`, the API server would silently drop an entry whose value is null. The
        entry would then have no effect, although its author wrote it. The second rule rejects it.
        """
        for values in schema["patternProperties"].values():
            values["nullable"] = True
        is_key = f"key.matches(r'{self._schema['pattern']}')"
        schema["x-kubernetes-validations"] = [
            {
                "rule": f"self.all(key, {is_key})",
                "message": f"has a key that {self._problem}",
                "messageExpression": f"self.filter(key, !{is_key})[0] + ' {self._problem}'",
            },
            {
                "rule": "self.all(key, type(self[key]) == string)",
                "message": "has a key whose value is empty, should be a string",
                "messageExpression": "self.filter(key, type(self[key]) != string)[0]"
                " + ' is empty, should be a string'",
            },
        ]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: object) -> Json:
        return dict(self._schema)


T = TypeVar("T", bound=tuple[Any, ...])


def _check_not_empty(values: T) -> T:
    if not values:
        raise ValueError("is empty; it takes at least one")
    return values


NOT_EMPTY = AfterValidator(_check_not_empty)
"""Metadata of a list with at least one entry. `min_length` would report a wrong entry twice."""
