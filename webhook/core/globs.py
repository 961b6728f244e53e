"""Globs on the names of containers and registries. They match in linear time."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated

from webhook.core.types import TextPattern

MAX_CONTAINER_NAME_CHARACTERS = 63
"""The maximum length of a DNS label. The API server rejects longer names, but only after it has
called the webhooks."""
_MAX_COMPILED = 1_024
"""The maximum number of lists of globs that are kept compiled. A cluster's policies have fewer."""
CONTAINER_GLOB_PATTERN = r"^[-a-z0-9*?]{1,63}$"

ContainerGlob = Annotated[
    str,
    TextPattern(
        CONTAINER_GLOB_PATTERN,
        "can match no container name: use a-z, 0-9, '-', and '*' or '?' as wildcards",
    ),
]
"""A glob on container names in a policy."""


def glob_matches(glob: str, text: str) -> bool:
    """Return whether a glob matches the whole text.

    `*` stands for any run of characters and `?` for one character. The function does not backtrack,
    because clients choose the names and tenants write some of the globs (in pull secrets). A
    regular expression for a glob needs time that grows with a power of the text's length, and each
    `*` raises the exponent. This function searches for each part between two `*` only once, from
    left to right. It takes the first position where a part matches, because this position leaves
    the longest text for the later parts.

    The time is linear in the lengths of glob and text. If a `?` follows a `*`, the time is at most
    proportional to the product of both lengths. Callers must limit the length of texts that come
    from clients.
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


@lru_cache(_MAX_COMPILED)
def compile_globs(globs: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a predicate that is true for each container name that matches one of the globs.

    A name longer than MAX_CONTAINER_NAME_CHARACTERS matches no glob, not even `*`.
    """
    distinct = frozenset(globs)
    if "*" in distinct:
        return lambda name: len(name) <= MAX_CONTAINER_NAME_CHARACTERS
    with_wildcards = tuple(glob for glob in distinct if "*" in glob or "?" in glob)
    if not with_wildcards:
        return lambda name: name in distinct
    without_wildcards = distinct.difference(with_wildcards)
    return lambda name: (
        len(name) <= MAX_CONTAINER_NAME_CHARACTERS
        and (name in without_wildcards or any(glob_matches(glob, name) for glob in with_wildcards))
    )


def _part_matches_at(part: str, text: str, position: int) -> bool:
    """Return whether a part without `*` matches the text at a position.

    The text must have at least as many characters from there on as the part.
    """
    if "?" not in part:
        return text.startswith(part, position)
    return all(symbol in ("?", text[position + offset]) for offset, symbol in enumerate(part))


def _find_part(part: str, text: str, start: int, end: int) -> int:
    """Return the first position where a part without `*` matches, or -1.

    The match must lie between `start` and `end`.
    """
    if "?" not in part:
        return text.find(part, start, end)
    positions = range(start, end - len(part) + 1)
    return next((position for position in positions if _part_matches_at(part, text, position)), -1)
