"""The rule that all remedies of a policy name the same RuntimeClass, because a pod has only one.

The rule exists twice: for the validator of the model, and in CEL for the CRD.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from pydantic_core import PydanticCustomError

from webhook.core.remedies import REMEDIES

_CLASS_SETTINGS = [
    (remedy, remedy.settings.model_fields[remedy.runtime_class.field])
    for remedy in REMEDIES.values()
    if remedy.runtime_class
]
"""Each remedy that can name a RuntimeClass, with the field that names it."""


def check_one_runtime_class(settings: Mapping[str, Any]) -> None:
    """Raise PydanticCustomError if two of the settings name different RuntimeClasses.

    `settings` are the settings of a policy's remedies by name.
    """
    named = [
        (remedy.name, field.alias, class_name)
        for remedy, field in _CLASS_SETTINGS
        if remedy.name in settings and (class_name := remedy.class_name(settings[remedy.name]))
    ]
    for remedy, key, other in named[1:]:
        first_remedy, first_key, one = named[0]
        if other != one:
            raise PydanticCustomError(
                "two_classes",
                "a pod has only one RuntimeClass: this is {other}, but {path} is {one}",
                {
                    "other": other,
                    "path": f"{first_remedy}.{first_key}",
                    "one": one,
                    "at": [remedy, key],
                },
            )


def one_runtime_class_rules() -> Iterator[dict[str, Any]]:
    """Yield a CEL rule for each two remedies that can name a RuntimeClass."""
    for settings in combinations(_CLASS_SETTINGS, 2):
        first, other = (f"{remedy.name}.{field.alias}" for remedy, field in settings)
        left_out = " || ".join(
            f"!has(self.{path})"
            for remedy, field in settings
            for path in (remedy.name, f"{remedy.name}.{field.alias}")
            if path == remedy.name or not field.is_required()
        )
        yield {
            "rule": f"{left_out} || self.{other} == self.{first}",
            "message": f"a pod has only one RuntimeClass: this differs from {first}",
            "messageExpression": f"'a pod has only one RuntimeClass: this is ' + self.{other}"
            f" + ', but {first} is ' + self.{first}",
            "fieldPath": f".{other}",
        }
