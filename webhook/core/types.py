"""The value types of policies: the base model, durations, and globs on container names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel


class StrictModel(BaseModel):
    """A part of a SettlePolicy: camelCase keys, strict types, unknown keys are errors."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=to_camel,
    )


DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$|^0$"
_DURATION = re.compile(DURATION_PATTERN, re.ASCII)
_DURATION_PART = re.compile(r"([0-9.]+)(ms|s|m|h)", re.ASCII)
_UNIT_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_MAX_DURATION_CHARACTERS = 32


def parse_duration(text: object) -> int:
    """Return the milliseconds in a duration such as `10ms`, `1.5s` or `1m30s`.

    The format is that of Go and Kubernetes. Fractions of a millisecond are cut off.

    Raises ValueError, with a message for the author of the text, if it is not a duration.
    """
    if (
        not isinstance(text, str)
        or len(text) > _MAX_DURATION_CHARACTERS
        or not _DURATION.fullmatch(text)
    ):
        raise ValueError(f"{text!r} is not a duration: write it as 10ms, 1.5s or 1m30s")
    parts = _DURATION_PART.findall(text)
    return int(sum(Decimal(number) * _UNIT_MILLISECONDS[unit] for number, unit in parts))


def format_duration(milliseconds: int) -> str:
    """Return a duration as text: 500 gives `500ms`, 1500 gives `1500ms`, 2000 gives `2s`."""
    if milliseconds and milliseconds % 1_000 == 0:
        return f"{milliseconds // 1_000}s"
    return f"{milliseconds}ms"


def _parse_delay(value: object) -> int:
    milliseconds = parse_duration(value)
    if milliseconds > 60_000:
        raise ValueError(f"{value!r} is longer than 1m, the longest a pod may be held up")
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
                    "message": "is longer than 1m, the longest a pod may be held up",
                }
            ],
        }
    ),
]
"""A duration in a policy: at most one minute, stored as milliseconds."""


MAX_CONTAINER_NAME_CHARACTERS = 63
"""The length of a DNS label. The API server rejects longer names, but only after the webhooks."""

CONTAINER_GLOB_PATTERN = r"^[-a-z0-9*?]{1,63}$"
_CONTAINER_GLOB = re.compile(CONTAINER_GLOB_PATTERN, re.ASCII)


def _check_container_glob(glob: str) -> str:
    if not _CONTAINER_GLOB.fullmatch(glob):
        raise ValueError(
            f"{glob!r} can match no container name: use a-z, 0-9, '-', and '*' or '?' as wildcards"
        )
    return glob


ContainerGlob = Annotated[
    str,
    AfterValidator(_check_container_glob),
    WithJsonSchema({"type": "string", "pattern": CONTAINER_GLOB_PATTERN}),
]
"""A glob on container names in a policy."""


def glob_matches(glob: str, text: str) -> bool:
    """Return whether a glob matches the whole text.

    `*` stands for any run of characters and `?` for one character. The function does not backtrack,
    because clients choose the names and tenants write some of the globs (in pull secrets). A glob
    compiled to a regular expression needs time that grows with a power of the text's length, and
    each `*` raises the exponent. Here each part between two `*` is searched for once, from left to
    right. The first place where a part fits leaves the longest text for the later parts.

    The time is linear in the lengths of glob and text. A `?` after a `*` raises it to at most the
    product of both lengths. Callers must bound texts that come from clients.
    """
    first, *rest = glob.split("*")
    if not rest:
        return len(first) == len(text) and _part_matches_at(first, text, 0)
    *middle, last = rest
    position, end = len(first), len(text) - len(last)
    if (
        position > end
        or not _part_matches_at(first, text, 0)
        or not _part_matches_at(last, text, end)
    ):
        return False
    for part in middle:
        position = _find_part(part, text, position, end)
        if position < 0:
            return False
        position += len(part)
    return True


def compile_globs(globs: Iterable[str]) -> Callable[[str], bool]:
    """Return a predicate that holds for container names that match one of the globs.

    A name longer than MAX_CONTAINER_NAME_CHARACTERS matches no glob, not even `*`.
    """
    chosen = frozenset(globs)
    if "*" in chosen:
        return lambda name: len(name) <= MAX_CONTAINER_NAME_CHARACTERS
    wild = tuple(glob for glob in chosen if "*" in glob or "?" in glob)
    if not wild:
        return lambda name: name in chosen
    exact = chosen.difference(wild)
    return lambda name: (
        len(name) <= MAX_CONTAINER_NAME_CHARACTERS
        and (name in exact or any(glob_matches(glob, name) for glob in wild))
    )


def _part_matches_at(part: str, text: str, position: int) -> bool:
    """Return whether a part without `*` matches at a position. The text must be long enough."""
    if "?" not in part:
        return text.startswith(part, position)
    return all(wanted in ("?", text[position + offset]) for offset, wanted in enumerate(part))


def _find_part(part: str, text: str, start: int, end: int) -> int:
    """Return the first position of a part without `*` between `start` and `end`, or -1."""
    if "?" not in part:
        return text.find(part, start, end)
    positions = range(start, end - len(part) + 1)
    return next((at for at in positions if _part_matches_at(part, text, at)), -1)
