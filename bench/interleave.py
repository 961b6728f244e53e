"""Interleaved measurements: A B C, C B A, A B C, and so on.

The speed of a shared machine changes from minute to minute. Such a change
affects all measurements that alternate within seconds. So their ratio is comparable between
machines, although the figures are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def interleave(
    measurements: Mapping[str, Callable[[], T]],
    rounds: int,
    warm_up: Callable[[str], object] = lambda _name: None,
) -> dict[str, list[T]]:
    """Run every measurement once in each round, and return the results of each measurement.

    `warm_up` is called with each name before the first round. The order is reversed after each
    round.
    """
    for name in measurements:
        warm_up(name)
    results: dict[str, list[T]] = {name: [] for name in measurements}
    order = list(measurements)
    for _ in range(rounds):
        for name in order:
            results[name].append(measurements[name]())
        order.reverse()
    return results
