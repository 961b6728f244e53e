"""Globs on names: `*` for any run of characters, `?` for one, matched without backtracking.

A webhook sees names before the API server validates them, and tenants write some of the globs (in
pull secrets). A glob as a regular expression takes time that grows with a power of the name's
length, one power for each `*`. Here each part between two `*` is searched for once, from left to
right: the first place where a part fits leaves the most room for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

MAX_CONTAINER_NAME_CHARACTERS = 63
"""A DNS label: the API server refuses a pod with a longer name, after the webhooks have run."""

PATTERN = r"^[-a-z0-9*?]{1,63}$"
_VALID = re.compile(PATTERN, re.ASCII)


def _check(glob: str) -> str:
    if not _VALID.fullmatch(glob):
        raise ValueError(
            f"{glob!r} can match no container name: use a-z, 0-9, '-', and '*' or '?' as wildcards"
        )
    return glob


Glob = Annotated[
    str, AfterValidator(_check), WithJsonSchema({"type": "string", "pattern": PATTERN})
]


def glob_matches(glob: str, text: str) -> bool:
    """Whether a glob matches all of a text.

    Takes time in proportion to the lengths of both; with a `?` behind a `*`, to their product at
    the most. A caller that takes texts from clients bounds them.
    """
    first, *rest = glob.split("*")
    if not rest:
        return len(first) == len(text) and _fits(first, text, 0)
    *middle, last = rest
    at, end = len(first), len(text) - len(last)
    if at > end or not _fits(first, text, 0) or not _fits(last, text, end):
        return False
    for part in middle:
        at = _find(part, text, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def compile_globs(globs: Iterable[str]) -> Callable[[str], bool]:
    """A predicate that holds for names of containers that match one of the globs as a whole.

    A name that no container can have, since it is too long, matches none of them, not even `*`.
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


def _fits(part: str, text: str, at: int) -> bool:
    """Whether a part without `*` stands in the text at a position; the text is long enough."""
    if "?" not in part:
        return text.startswith(part, at)
    return all(wanted in ("?", text[at + offset]) for offset, wanted in enumerate(part))


def _find(part: str, text: str, start: int, end: int) -> int:
    """The first position of a part without `*` between two positions, or -1."""
    if "?" not in part:
        return text.find(part, start, end)
    positions = range(start, end - len(part) + 1)
    return next((at for at in positions if _fits(part, text, at)), -1)
