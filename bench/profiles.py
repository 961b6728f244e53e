"""How long to measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """How much work goes into a figure."""

    rounds: int
    seconds: float
    """Of load, on one server in one round."""
    warm_up: float
    """Seconds of load that do not count, once for each server and kind of review."""
    creates: int
    """Pods of each kind in one round."""
    passes: int
    """Over all reviews, for one figure of the core in one round."""
    policies: tuple[int, ...]
    namespaces: tuple[int, ...]
    kilobytes: tuple[int, ...]
    init_containers: tuple[int, ...]
    starts: int
    large: tuple[int, int]
    """Namespaces and policies of the cluster whose memory is measured."""


FULL = Profile(
    rounds=5,
    seconds=4.0,
    warm_up=2.0,
    creates=300,
    passes=20,
    policies=(1, 10, 100, 1_000),
    namespaces=(10, 100, 1_000, 10_000),
    kilobytes=(2, 8, 60, 250),
    init_containers=(1, 5, 10, 20, 40),
    starts=9,
    large=(10_000, 1_000),
)
SHORT = Profile(
    rounds=1,
    seconds=0.3,
    warm_up=0,
    creates=10,
    passes=1,
    policies=(1, 10),
    namespaces=(10, 100),
    kilobytes=(2, 8),
    init_containers=(1, 5),
    starts=1,
    large=(100, 10),
)
"""To see that everything works. What it measures means nothing."""
