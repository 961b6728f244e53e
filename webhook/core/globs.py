"""Globs on the names of containers and registries. They match in linear time."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from functools import lru_cache
from typing import Annotated

from pydantic import Field

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
MAX_CONTAINER_GLOBS = 50
"""The maximum number of globs in a list. A pod can have hundreds of containers, and each is
compared with each glob. 8,000 of them in the policy of a preview delayed reviews by 4 s."""
ContainerGlobs = Annotated[
    tuple[ContainerGlob, ...], Field(strict=False, max_length=MAX_CONTAINER_GLOBS)
]


def glob_matches(glob: str, text: str) -> bool:
    """Return whether a glob matches the whole text. `*` stands for any run of characters.

    The function does not backtrack, because tenants write some of the globs (in pull secrets), and
    clients choose the names. It searches for each part between two `*` only once, from left to
    right. It takes the first position where a part matches, because this position leaves the
    longest text for the later parts. The time is linear in the lengths of glob and text.
    """
    first, *rest = glob.split("*")
    if not rest:
        return first == text
    *middle, last = rest
    position, end = len(first), len(text) - len(last)
    if position > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in middle:
        position = text.find(part, position, end)
        if position < 0:
            return False
        position += len(part)
    return True


@lru_cache(_MAX_COMPILED)
def compile_globs(globs: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a predicate that is true for each container name that matches one of the globs.

    `*` stands for any run of characters and `?` for one character. A name longer than
    MAX_CONTAINER_NAME_CHARACTERS matches no glob, not even `*`.
    """
    distinct = frozenset(globs)
    if "*" in distinct:
        return lambda name: len(name) <= MAX_CONTAINER_NAME_CHARACTERS
    with_wildcards = [glob for glob in distinct if "*" in glob or "?" in glob]
    if not with_wildcards:
        return lambda name: name in distinct
    # The expressions have atomic groups, so they do not backtrack.
    matches = re.compile("|".join(map(translate, with_wildcards))).match
    return lambda name: (
        len(name) <= MAX_CONTAINER_NAME_CHARACTERS
        and (name in distinct or matches(name) is not None)
    )
