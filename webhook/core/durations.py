"""Durations in policies, such as `1.5s`, in the format of Go and Kubernetes."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$|^0$"
_DURATION = re.compile(DURATION_PATTERN, re.ASCII)
_DURATION_PART = re.compile(r"([0-9.]+)(ms|s|m|h)", re.ASCII)
_UNIT_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_MAX_DURATION_CHARACTERS = 32


def parse_duration(text: object) -> int:
    """Return the number of milliseconds in a duration such as `10ms`, `1.5s` or `1m30s`.

    The format is that of Go and Kubernetes. Fractions of a millisecond are cut off.

    Raises ValueError if `text` is not a duration. The author of the policy reads its message.
    """
    if (
        not isinstance(text, str)
        or len(text) > _MAX_DURATION_CHARACTERS
        or not _DURATION.fullmatch(text)
    ):
        raise ValueError(f"{text!r} is not a duration: write it as 10ms, 1.5s or 1m30s")
    parts = _DURATION_PART.findall(text)
    return int(sum(Decimal(number) * _UNIT_MILLISECONDS[unit] for number, unit in parts))


def format_duration(milliseconds: int, *, separator: str = "") -> str:
    """Return a duration as text. Sentences put a space between the number and the unit.

    Whole seconds are written in seconds: 2000 gives `2s`, and 1500 gives `1500ms`.
    """
    if milliseconds and milliseconds % 1_000 == 0:
        return f"{milliseconds // 1_000}{separator}s"
    return f"{milliseconds}{separator}ms"


def _parse_delay(value: object) -> int:
    """Return the milliseconds in a duration of at most one minute, or raise ValueError."""
    milliseconds = parse_duration(value)
    if milliseconds > 60_000:
        raise ValueError(f"{value!r} is longer than 1m, the maximum delay of a pod")
    return milliseconds


Delay = Annotated[
    int,
    BeforeValidator(_parse_delay),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": DURATION_PATTERN,
            "maxLength": _MAX_DURATION_CHARACTERS,
            "x-kubernetes-validations": [
                {
                    # `pattern` reports malformed text, so the rule accepts it. The bound is 60001ms
                    # because fractions of a millisecond are cut off.
                    "rule": f"!self.matches(r'{DURATION_PATTERN}')"
                    " || duration(self) < duration('60001ms')",
                    "message": "is longer than 1m, the maximum delay of a pod",
                }
            ],
        }
    ),
]
"""A duration in a policy: at most one minute, stored as milliseconds."""
