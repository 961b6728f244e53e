"""Durations as Go and Kubernetes write them: `10ms`, `500ms`, `1.5s`, `1m30s`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$|^0$"
_WHOLE = re.compile(PATTERN, re.ASCII)
_PART = re.compile(r"([0-9.]+)(ms|s|m|h)", re.ASCII)
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_LONGEST_TEXT = 32


def parse(text: object) -> int:
    """Milliseconds in a duration such as `1m30s`; fractions of a millisecond are cut off.

    Raises ValueError, in words meant for the person who wrote it, for anything else.
    """
    if not isinstance(text, str) or len(text) > _LONGEST_TEXT or not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration: write it as 10ms, 1.5s or 1m30s")
    return int(sum(Decimal(n) * _MILLISECONDS[unit] for n, unit in _PART.findall(text)))


def text(milliseconds: int) -> str:
    """The shortest text of a duration: 500 gives `500ms`, 1500 gives `1500ms`, 2000 gives `2s`."""
    if milliseconds and milliseconds % 1_000 == 0:
        return f"{milliseconds // 1_000}s"
    return f"{milliseconds}ms"


def _parse_at_most_a_minute(value: object) -> int:
    milliseconds = parse(value)
    if milliseconds > 60_000:
        raise ValueError(f"{value!r} is longer than 1m, the longest a pod may be held up")
    return milliseconds


Delay = Annotated[
    int,
    BeforeValidator(_parse_at_most_a_minute),
    PlainSerializer(text, return_type=str, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": PATTERN,
            "maxLength": _LONGEST_TEXT,
            "x-kubernetes-validations": [
                {
                    # What does not match is told by the pattern; fractions of 1ms are cut off.
                    "rule": f"!self.matches(r'{PATTERN}') || duration(self) < duration('60001ms')",
                    "message": "is longer than 1m, the longest a pod may be held up",
                }
            ],
        }
    ),
]
"""A duration in a policy: at most one minute, held as milliseconds."""
