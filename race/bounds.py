"""Confidence bounds of a rate: one-sided, exact (Clopper and Pearson), at 95 %.

For 0 of n the upper bound is close to 3/n, the "rule of three".
"""

from __future__ import annotations

import math
from collections.abc import Callable

CONFIDENCE = 0.95
# Halvings of the interval from 0 to 1: more than the digits of a float.
_HALVINGS = 60


def upper_bound(hits: int, trials: int) -> float:
    """Return the highest rate with which so few hits have a probability of at least 5 %."""
    _check(hits, trials)
    if hits == trials:
        return 1.0
    return _solve(lambda rate: _at_most(hits, trials, rate) >= 1 - CONFIDENCE)


def lower_bound(hits: int, trials: int) -> float:
    """Return the lowest rate with which so many hits have a probability of at least 5 %."""
    _check(hits, trials)
    return 1.0 - upper_bound(trials - hits, trials)


def _check(hits: int, trials: int) -> None:
    if not 0 <= hits <= trials or trials == 0:
        raise ValueError(f"{hits} of {trials} is no rate")


def _solve(holds: Callable[[float], bool]) -> float:
    """Return the highest rate for which a condition holds that is true below it only."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _at_most(hits: int, trials: int, rate: float) -> float:
    """Return the probability of at most so many hits. The rate is above 0 and below 1."""
    return math.fsum(
        math.exp(
            math.lgamma(trials + 1)
            - math.lgamma(k + 1)
            - math.lgamma(trials - k + 1)
            + k * math.log(rate)
            + (trials - k) * math.log1p(-rate)
        )
        for k in range(hits + 1)
    )
