"""Durations in policies, such as `1.5s`, in the format of Go and Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any

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


def _delay_parser(maximum: str) -> Callable[[object], int]:
    """Return a parser of durations of at most `maximum`. It returns milliseconds."""
    maximum_ms = parse_duration(maximum)

    def parse(value: object) -> int:
        milliseconds = parse_duration(value)
        if milliseconds > maximum_ms:
            raise ValueError(f"{value!r} is longer than {maximum}, the maximum delay of a pod")
        return milliseconds

    return parse


def _delay_schema(maximum: str) -> WithJsonSchema:
    """Return the schema of durations of at most `maximum`."""
    # `pattern` reports malformed text, so the rule accepts it. The bound is one millisecond more,
    # because fractions of a millisecond are cut off.
    bound = parse_duration(maximum) + 1
    return WithJsonSchema(
        {
            "type": "string",
            "pattern": DURATION_PATTERN,
            "maxLength": _MAX_DURATION_CHARACTERS,
            "x-kubernetes-validations": [
                {
                    "rule": f"!self.matches(r'{DURATION_PATTERN}')"
                    f" || duration(self) < duration('{bound}ms')",
                    "message": f"is longer than {maximum}, the maximum delay of a pod",
                }
            ],
        }
    )


_AS_TEXT = PlainSerializer(format_duration, return_type=str, when_used="json")

Delay = Annotated[int, BeforeValidator(_delay_parser("1m")), _AS_TEXT, _delay_schema("1m")]
"""A duration in a policy: at most one minute, stored as milliseconds."""
LongDelay = Annotated[int, BeforeValidator(_delay_parser("2m")), _AS_TEXT, _delay_schema("2m")]
"""The same, at most two minutes."""


def check_not_zero(timeout: int) -> int:
    """Return a timeout in milliseconds. Raise ValueError if it is 0."""
    if not timeout:
        raise ValueError(_ZERO_TIMEOUT_MESSAGE)
    return timeout


_ZERO_TIMEOUT_MESSAGE = "timeout is 0: leave the remedy out instead"
TIMEOUT_NOT_ZERO_RULE: dict[str, Any] = {
    "rule": "duration(self.timeout) >= duration('1ms')",
    "message": _ZERO_TIMEOUT_MESSAGE,
    "fieldPath": ".timeout",
}
"""The rule of `check_not_zero` for the CRD, for a model with a field `timeout`."""
