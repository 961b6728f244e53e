"""What a scenario is, and the registry of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from tests.faults.rig import Rig

Steps: TypeAlias = Iterator[None]
"""A generator with two yields. What precedes the first prepares the rig, before any replica starts.
What follows it makes the fault, while pods are created. What follows the second undoes the fault.
"""


class Unavailable(Exception):  # noqa: N818
    """This machine cannot make the fault. The message says what it lacks."""


class Loss(Enum):
    """The creations that a fault may affect: refused with Fail, unsettled with Ignore."""

    NONE = "none"
    IN_HAND = "in hand"
    """Those in the hands of a replica, until it is no endpoint of the Service any more."""
    WHILE_IT_LASTS = "while it lasts"
    """All while the fault lasts, since the API server is not made to call podsettle or to trust it.
    """


class Scenario(NamedTuple):
    """A fault that the rig makes."""

    name: str
    about: str
    """The fault as a phrase for people."""
    steps: Callable[[Rig], Steps]
    loss: Loss
    seconds: float
    """How long the fault lasts. 0: it is over at once."""
    is_short: bool
    """Whether the short form of `make faults` has it."""


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    about: str,
    *,
    name: str = "",
    loss: Loss = Loss.NONE,
    seconds: float = 10,
    short: bool = False,
) -> Callable[[Callable[[Rig], Steps]], Callable[[Rig], Steps]]:
    """Register a generator function as a scenario, by its own name if `name` is empty."""

    def register(steps: Callable[[Rig], Steps]) -> Callable[[Rig], Steps]:
        key = name or steps.__name__.replace("_", "-")
        SCENARIOS[key] = Scenario(key, about, steps, loss, seconds, short)
        return steps

    return register
