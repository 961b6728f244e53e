"""Rounds in which every contender has its turn: A B C, C B A, A B C …

A shared machine is faster in one minute than in the next. Contenders that take turns within
seconds share its moods, so that their ratio travels where neither figure does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def interleave(
    turns: Mapping[str, Callable[[], T]],
    rounds: int,
    warm_up: Callable[[str], object] = lambda _name: None,
) -> dict[str, list[T]]:
    """What each turn gave in each round. The order is reversed from round to round."""
    for name in turns:
        warm_up(name)
    found: dict[str, list[T]] = {name: [] for name in turns}
    order = list(turns)
    for _ in range(rounds):
        for name in order:
            found[name].append(turns[name]())
        order.reverse()
    return found
