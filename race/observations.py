"""What was observed of the pods so far: exit codes, and pods that did not end as they should."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from race.cells import Condition
from race.pods import Exit, exits_of, lacks_an_exit


@dataclass
class Observations:
    """The exits by condition and code, and the number of pods that they are from."""

    exits: Counter[Exit] = field(default_factory=Counter)
    pods: Counter[Condition] = field(default_factory=Counter)
    """Pods with at least one exit under a condition."""
    stuck: Counter[Condition] = field(default_factory=Counter)
    """Pods that did not end and were deleted."""
    incomplete: Counter[Condition] = field(default_factory=Counter)
    """Pods that ended, but failed or lack an exit although no container failed."""

    def ended(self, condition: Condition) -> int:
        """Return how many containers ended under a condition, without those of podsettle."""
        return sum(
            count
            for found, count in self.exits.items()
            if found.condition == condition and not found.is_added
        )

    def add_ended(self, pod: Mapping[str, Any], condition: Condition) -> None:
        """Add a pod that has ended."""
        self.add_exits(pod, condition)
        self.incomplete[condition] += lacks_an_exit(pod, condition)

    def add_stuck(self, pod: Mapping[str, Any], condition: Condition) -> None:
        """Add a pod that did not end. Its containers may have ended."""
        self.add_exits(pod, condition)
        self.stuck[condition] += 1

    def add_exits(self, pod: Mapping[str, Any], condition: Condition) -> None:
        """Add the exits of a pod, which may still run."""
        found = list(exits_of(pod, condition))
        self.exits.update(found)
        self.pods.update({each.condition for each in found})
