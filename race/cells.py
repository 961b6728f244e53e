"""The cells of the experiment: conditions, and how many containers are to end under each.

A full run takes about 20 minutes on two idle cores. Most of that time goes into the four cells that
bound the rate of the default policy: 1,000 containers that keep their exit code bound it at 0.3 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


class Provocation(StrEnum):
    """How the race is provoked. The values are the names in tables and of RuntimeClasses."""

    NATURAL = "natural"
    """Nothing is changed."""
    STATE_FAILS = "F"
    """The runtime's `state` fails once the container has stopped."""
    LATE_EXIT = "S"
    """F, and the exit code is handed over 400 ms late."""


class Delivery(StrEnum):
    """How podsettle's wrapper gets into a container. The values are those of a policy."""

    NONE = "none"
    """The container is not wrapped."""
    SHELL = "Shell"
    BINARY = "Binary"
    IMAGE_VOLUME = "ImageVolume"
    AUTO = "Auto"


class Kind(StrEnum):
    """The kind of a container."""

    INIT = "init"
    REGULAR = "regular"


DEFAULT_LIFETIME_MS = 500
"""The default of a policy's `minLifetime`."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What containers have in common that are counted together."""

    provocation: Provocation
    delivery: Delivery
    lifetime_ms: int
    """A wrapped container's `minLifetime`. For other containers: how long the command sleeps."""
    kind: Kind

    @property
    def is_wrapped(self) -> bool:
        """Whether podsettle wraps the containers."""
        return self.delivery is not Delivery.NONE

    @property
    def is_control(self) -> bool:
        """Whether the containers have nothing that keeps them alive."""
        return not self.is_wrapped and self.lifetime_ms == 0

    @property
    def is_default(self) -> bool:
        """Whether podsettle wraps the containers with the default lifetime."""
        return self.is_wrapped and self.lifetime_ms == DEFAULT_LIFETIME_MS

    @property
    def main(self) -> Condition:
        """The condition of the main container, which is never wrapped, in a pod of this one."""
        return Condition(self.provocation, Delivery.NONE, 0, Kind.REGULAR)


@dataclass(frozen=True, slots=True)
class Cell:
    """A condition, and how many containers have to end under it."""

    condition: Condition
    wanted: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The cells for each kind of runtime."""

    affected: Sequence[Cell]
    """For a CRI-O that has the defect."""
    other: Sequence[Cell]
    """For the CRI-O with the fix, and for containerd: their containers are never wrapped."""

    def scaled(self, share: float) -> Plan:
        """Return a plan with a share of the containers, and at least ten in each cell."""

        def shrink(cells: Sequence[Cell]) -> list[Cell]:
            return [replace(cell, wanted=max(10, round(cell.wanted * share))) for cell in cells]

        return Plan(shrink(self.affected), shrink(self.other))

    def without_podsettle(self) -> Plan:
        """Return the plan without the cells that need podsettle."""
        return replace(self, affected=[c for c in self.affected if not c.condition.is_wrapped])


def _cell(provocation: Provocation, delivery: Delivery, lifetime_ms: int, wanted: int) -> Cell:
    return Cell(Condition(provocation, delivery, lifetime_ms, Kind.INIT), wanted)


def _wrapped() -> tuple[Delivery, ...]:
    return tuple(delivery for delivery in Delivery if delivery is not Delivery.NONE)


_NATURAL, _FAILS, _LATE = Provocation.NATURAL, Provocation.STATE_FAILS, Provocation.LATE_EXIT
_CONTROLS = (
    _cell(_LATE, Delivery.NONE, 0, 120),
    _cell(_FAILS, Delivery.NONE, 0, 120),
    _cell(_NATURAL, Delivery.NONE, 0, 120),
    Cell(Condition(_LATE, Delivery.NONE, 0, Kind.REGULAR), 150),
)
# How long a container has to live: by its own command, and by a policy.
_LIFETIMES_MS = (10, 50, 100, 250)
_LIFETIMES = (
    *(_cell(_LATE, Delivery.NONE, lifetime, 30) for lifetime in _LIFETIMES_MS),
    *(_cell(_LATE, Delivery.SHELL, lifetime, 30) for lifetime in _LIFETIMES_MS),
)
FULL = Plan(
    affected=(
        *(_cell(_LATE, delivery, DEFAULT_LIFETIME_MS, 1_000) for delivery in _wrapped()),
        *_CONTROLS,
        *(
            Cell(Condition(_LATE, delivery, DEFAULT_LIFETIME_MS, Kind.REGULAR), 150)
            for delivery in _wrapped()
        ),
        _cell(_FAILS, Delivery.AUTO, DEFAULT_LIFETIME_MS, 120),
        *_LIFETIMES,
    ),
    other=(
        _cell(_LATE, Delivery.NONE, 0, 300),
        _cell(_FAILS, Delivery.NONE, 0, 100),
        Cell(Condition(_LATE, Delivery.NONE, 0, Kind.REGULAR), 100),
    ),
)
