"""Globs on container names: `*` for any run of characters, `?` for one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

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


def compile_globs(globs: Iterable[str]) -> Callable[[str], bool]:
    """A predicate that holds for names that match one of the globs as a whole."""
    patterns = [re.escape(g).replace(r"\*", ".*").replace(r"\?", ".") for g in globs]
    if ".*" in patterns:
        return lambda _name: True
    if not patterns:
        return lambda _name: False
    whole = re.compile("|".join(patterns))
    return lambda name: whole.fullmatch(name) is not None
