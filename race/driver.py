"""Creation of pods on a node until enough containers have ended under each condition.

Pods of all cells run side by side, so that controls and wrapped containers see the same load.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from race.cells import Cell, Condition, Provocation
from race.deliveries import check_delivery
from race.errors import RaceError
from race.observations import Observations
from race.pods import CONDITION_LABEL, expected_exits, make_pod, name_of
from tests.support.kube.cluster import KubeCluster

_POLL_SECONDS = 1.0
_REPORT_SECONDS = 20.0
# A pod of 20 init containers takes half a minute on an idle node.
_STUCK_SECONDS = 300.0
_TERMINAL = ("Succeeded", "Failed")

Json = dict[str, Any]


@dataclass
class Progress:
    """The exits so far, and what the pods in flight will add."""

    cells: Sequence[Cell]
    seen: Observations = field(default_factory=Observations)
    in_flight: Counter[Condition] = field(default_factory=Counter)
    """Pods that were created and have not ended."""

    @property
    def is_complete(self) -> bool:
        """Whether enough containers ended under each condition."""
        return all(self.seen.ended(cell.condition) >= cell.wanted for cell in self.cells)

    def next_condition(self) -> Condition | None:
        """Return the condition that lags behind most, or None if the pods in flight suffice."""
        shares = {cell.condition: self._expected(cell) / cell.wanted for cell in self.cells}
        condition = min(shares, key=shares.__getitem__)
        return condition if shares[condition] < 1 else None

    def _expected(self, cell: Cell) -> float:
        condition = cell.condition
        fails = condition.provocation is Provocation.LATE_EXIT and not condition.is_wrapped
        # Such a pod fails with its first container.
        each = 1 if fails else expected_exits(condition)
        return self.seen.ended(condition) + each * self.in_flight[condition]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run observed."""

    seen: Observations
    seconds: float
    complete: bool


class Driver:
    """Creates, watches and deletes the pods of some cells in one namespace."""

    def __init__(
        self,
        cluster: KubeCluster,
        namespace: str,
        image: str,
        *,
        in_flight: int,
        announce: Callable[[str], None],
    ) -> None:
        self._cluster, self._image = cluster, image
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._in_flight = in_flight
        self._announce = announce
        self._created: dict[str, tuple[Condition, float]] = {}

    def run(self, cells: Sequence[Cell], seconds: float) -> Outcome:
        """Create pods until each cell is complete, or until the time is over."""
        start = reported = time.monotonic()
        progress = Progress(cells)
        while not progress.is_complete and time.monotonic() - start < seconds:
            self._collect(progress)
            self._fill(progress)
            if time.monotonic() - reported > _REPORT_SECONDS:
                reported = time.monotonic()
                self._report(progress, reported - start)
            time.sleep(_POLL_SECONDS)
        complete = progress.is_complete
        self._count_in_flight(progress)
        self._cluster.request("DELETE", self._path)
        elapsed = time.monotonic() - start
        self._report(progress, elapsed)
        return Outcome(progress.seen, elapsed, complete)

    def _fill(self, progress: Progress) -> None:
        while len(self._created) < self._in_flight:
            condition = progress.next_condition()
            if condition is None:
                return
            self._create(condition)
            progress.in_flight[condition] += 1

    def _create(self, condition: Condition) -> None:
        pod = self._cluster.create(self._path, make_pod(condition, self._image))
        check_delivery(pod, condition)
        self._created[pod["metadata"]["name"]] = (condition, time.monotonic())

    def _collect(self, progress: Progress) -> None:
        """Count the containers of pods that have ended, and delete these pods."""
        for pod, condition, since in self._list():
            if pod["status"].get("phase") in _TERMINAL:
                progress.seen.add_ended(pod, condition)
                self._finish(pod, condition, progress)
            elif time.monotonic() - since > _STUCK_SECONDS:
                progress.seen.add_stuck(pod, condition)
                self._announce(f"pod {pod['metadata']['name']} did not end: {_states(pod)}")
                self._finish(pod, condition, progress)

    def _count_in_flight(self, progress: Progress) -> None:
        """Count the containers that have ended in pods that still run.

        A pod that fails ends early. Without the others, the end of a run would count too many
        failures.
        """
        for pod, condition, _ in self._list():
            if pod["status"].get("phase") in _TERMINAL:
                progress.seen.add_ended(pod, condition)
            else:
                progress.seen.add_exits(pod, condition)

    def _list(self) -> Iterator[tuple[Json, Condition, float]]:
        """Yield each pod that exists and is not counted, its condition and its creation."""
        query = f"{self._path}?resourceVersion=0&labelSelector={CONDITION_LABEL}"
        status, listed, _ = self._cluster.request("GET", query)
        if status != 200:
            raise RaceError(f"the API server answered {status} to a list of pods: {listed}")
        for pod in listed["items"]:
            if (created := self._created.get(pod["metadata"]["name"])) is not None:
                yield pod, *created

    def _finish(self, pod: Json, condition: Condition, progress: Progress) -> None:
        name = pod["metadata"]["name"]
        progress.in_flight[condition] -= 1
        del self._created[name]
        self._cluster.request("DELETE", f"{self._path}/{name}")

    def _report(self, progress: Progress, elapsed: float) -> None:
        seen = progress.seen
        complete = sum(seen.ended(cell.condition) >= cell.wanted for cell in progress.cells)
        last = min(progress.cells, key=lambda cell: seen.ended(cell.condition) / cell.wanted)
        self._announce(
            f"{elapsed:.0f} s: {seen.exits.total()} containers ended, {complete} of "
            f"{len(progress.cells)} cells complete; last: {name_of(last.condition)} "
            f"{seen.ended(last.condition)} of {last.wanted}"
        )


def _states(pod: Mapping[str, Any]) -> list[Any]:
    status = pod["status"]
    lists = (status.get("initContainerStatuses", ()), status.get("containerStatuses", ()))
    return [each["state"] for statuses in lists for each in statuses]
