"""CPU pinning: the server and the load generator run on different cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.errors import MissingError


@dataclass(frozen=True, slots=True)
class PinnedCores:
    """The numbers of the cores for the server and for the load generator."""

    server: int
    load: int


def choose_cores() -> PinnedCores:
    """Return two of the cores that this process may use.

    The function chooses the last two, because on most machines the first core handles more
    interrupts. Raises MissingError if there is only one core.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise MissingError("the benchmark needs two cores: for the server and for the load")
    return PinnedCores(server=allowed[-1], load=allowed[-2])


@contextmanager
def pinned_to(core: int) -> Iterator[None]:
    """Pin this process to one core while the block runs."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
