"""Profiles: the amount of work that the benchmark does for its figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """The number and the duration of measurements, and the sizes to measure."""

    rounds: int
    # The duration of the load on one server in one round.
    load_seconds: float
    # The duration of unmeasured load, once for each server and kind of review.
    warm_up_seconds: float
    # Pod creations of each kind in one round.
    creates: int
    # Passes over all reviews, for one figure of the core in one round.
    passes: int
    # The part `growth` has one row for each number in the next four fields.
    # Numbers of policies in the cluster.
    policies: tuple[int, ...]
    # Numbers of namespaces in the cluster.
    namespaces: tuple[int, ...]
    # Sizes of pods.
    kilobytes: tuple[int, ...]
    # Numbers of init containers in a pod.
    init_containers: tuple[int, ...]
    # The number of starts of podsettle whose time is measured.
    starts: int
    # The numbers of namespaces and policies of the cluster for the memory measurement.
    large: tuple[int, int]


FULL = Profile(
    rounds=5,
    load_seconds=4.0,
    warm_up_seconds=2.0,
    creates=300,
    passes=20,
    policies=(1, 10, 100, 1_000),
    namespaces=(10, 100, 1_000, 10_000),
    kilobytes=(2, 8, 60, 250),
    init_containers=(1, 5, 10, 20, 40),
    starts=9,
    large=(10_000, 1_000),
)
# This profile only checks that everything runs. Its figures mean nothing.
SHORT = Profile(
    rounds=1,
    load_seconds=0.3,
    warm_up_seconds=0,
    creates=10,
    passes=1,
    policies=(1, 10),
    namespaces=(10, 100),
    kilobytes=(2, 8),
    init_containers=(1, 5),
    starts=1,
    large=(100, 10),
)
