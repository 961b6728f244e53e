"""Who runs on which core: the server has one to itself, and so has what sends it reviews."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.errors import MissingError


@dataclass(frozen=True, slots=True)
class PinnedCores:
    """Two cores of those that this process may use."""

    server: int
    load: int


def choose_cores() -> PinnedCores:
    """The last two: the first one serves more interrupts on most machines."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise MissingError("it takes two cores: one for the server, one for the load")
    return PinnedCores(server=allowed[-1], load=allowed[-2])


@contextmanager
def pinned_to(core: int) -> Iterator[None]:
    """Keep this process on one core while the block runs."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
