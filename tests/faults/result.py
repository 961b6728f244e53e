"""The result of a fault, and whether more was lost than may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.pod_load import Creation

_MAX_LINES = 6


@dataclass(slots=True)
class Result:
    """One fault with one failure policy. Lists of three are: before, during and after the fault."""

    fault: str
    about: str
    policy: str
    created: list[int] = field(default_factory=lambda: [0, 0, 0])
    failed: list[int] = field(default_factory=lambda: [0, 0, 0])
    unsettled: list[int] = field(default_factory=lambda: [0, 0, 0])
    explained: int = 0
    """The failed and unsettled ones that the fault may affect."""
    beyond: list[str] = field(default_factory=list)
    """All others. The run fails if there are any."""
    slowest_seconds: float = 0.0
    normal_seconds: float | None = None
    """From the end of the fault until all was as before it, or None if that never came."""
    restarts: int = 0
    done: str = ""
    """What the fault did, with its numbers, where they differ from run to run."""
    readiness: list[str] = field(default_factory=list)
    """The checks of /readyz?verbose that failed, `[-]`, or had a note, `[!]`."""
    log: str = ""
    """The first warning or error."""
    status: list[str] = field(default_factory=list)
    """The conditions of the policy that the fault changed."""
    metrics: list[str] = field(default_factory=list)
    """The series that report problems and that the fault changed."""
    skipped: str = ""
    """Why this machine cannot make the fault."""

    @property
    def is_bad(self) -> bool:
        """Whether more was lost than may be, or the state before the fault never came back."""
        return bool(self.beyond) or (self.normal_seconds is None and not self.skipped)

    def count(
        self,
        creations: Sequence[Creation],
        fault: tuple[float, float],
        affected: tuple[float, float] | None,
    ) -> None:
        """Count creations, and sort out those that no replica may be the cause of.

        `fault` is when the fault began and ended, `affected` when it may affect creations.
        """
        begin, end = fault
        for creation in creations:
            period = 0 if creation.ended < begin else 1 if creation.ended <= end else 2
            kind = self.failed if creation.failed else self.unsettled
            self.created[period] += not creation.failed
            self.slowest_seconds = max(self.slowest_seconds, creation.seconds)
            if creation.settled:
                continue
            kind[period] += 1
            refused_with_ignore = creation.failed and self.policy == "Ignore"
            if (
                affected
                and affected[0] <= creation.ended <= affected[1]
                and not refused_with_ignore
            ):
                self.explained += 1
            elif len(self.beyond) < _MAX_LINES:
                word = "refused" if creation.failed else "unsettled"
                self.beyond.append(f"{word} {creation.ended - begin:+.2f} s from the fault's begin")
