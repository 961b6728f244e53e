"""Figures of rounds: percentiles, ratios, and the interval of a median."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, inf

# Each tail of the 95 % interval has at most this probability.
_TAIL = 0.025


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value below which about `percent` percent of the values are."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median: of the sign test, for independent values.

    It assumes nothing about their distribution. It is unbounded for fewer than six values, which
    cannot say as much.
    """
    ordered, count = sorted(values), len(values)
    # The probability that at most `cut` of the values are below the median.
    cut, below = 0, 1 / 2**count
    while below <= _TAIL:
        cut += 1
        below += comb(count, cut) / 2**count
    return (ordered[cut - 1], ordered[-cut]) if cut else (-inf, inf)
