"""Whether the CPU time of a function grows no faster than its input: ratios, no absolute times."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time
from typing import TypeVar

T = TypeVar("T")

_MIN_SECONDS = 0.002
"""Of the shortest measurement: the clock and the interpreter's own work are small beside it."""
_MAX_SIZE = 1_000_000
"""What is quicker than that for so large an input does not read it to its end."""
_LINEAR = 4.0
_MARGIN = 2.0
"""Fourfold input may take eightfold time (caches, memory); quadratic growth takes sixteenfold."""
_ATTEMPTS = 10
"""A busy machine disturbs some measurements, and not all of them."""


def grows_linearly(
    make: Callable[[int], T],
    act: Callable[[T], object],
    size: int = 1_000,
    largest: int = _MAX_SIZE,
) -> bool:
    """Whether `act` on `make` of n, 2n and 4n takes time in proportion to n.

    n is `size` or more: so much that it takes long enough to be measured, but no more than
    `largest`. Each time is the least of some runs, without the making of the input.
    """
    while _seconds(act, make(size)) < _MIN_SECONDS:
        size *= 2
        if size > largest:
            return True
    inputs = [make(size * k) for k in (1, 2, 4)]
    return any(_is_linear(act, inputs) for _ in range(_ATTEMPTS))


def cpu_ratio(act: Callable[[T], object], one: T, other: T) -> float:
    """How many times as long `act` on one input takes as on another, at the least of some runs."""
    # In turn, because a shared machine changes its speed from one second to the next.
    rounds = [[_seconds(act, each) for each in (one, other)] for _ in range(_ATTEMPTS)]
    return min(times[0] for times in rounds) / min(times[1] for times in rounds)


def _is_linear(act: Callable[[T], object], inputs: list[T]) -> bool:
    # In turn, because a shared machine changes its speed from one second to the next.
    rounds = [[_seconds(act, each) for each in inputs] for _ in range(3)]
    one, two, four = (min(times[n] for times in rounds) for n in range(len(inputs)))
    return four <= _LINEAR * _MARGIN * one and four <= _LINEAR / 2 * _MARGIN * two


def _seconds(act: Callable[[T], object], given: T) -> float:
    """CPU seconds of this thread, without those of a garbage collection."""
    gc.disable()
    try:
        start = thread_time()
        act(given)
        return thread_time() - start
    finally:
        gc.enable()
