"""The experiment on one real node: its runtime with the provocations, and podsettle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from race.calls import read_calls
from race.cells import Cell
from race.driver import Driver, Outcome
from race.errors import RaceError
from race.exposure import read_exposures, summarize
from race.pods import runtime_class
from race.podsettle import NAMESPACE, running_podsettle
from race.provocation import Provoked
from race.results import RuntimeResult, counts_of
from tests.support.node.node import RealNode

_RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"

Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What all nodes of a run have in common."""

    in_flight: int
    """Pods that exist at the same time."""
    seconds: float
    """The longest time for the pods of one node."""


def run_on(
    node: RealNode,
    commit: str,
    provoked: Sequence[Provoked],
    cells: Sequence[Cell],
    settings: Settings,
    announce: Announce,
) -> RuntimeResult:
    """Run the pods of some cells on a node whose runtime has the provoked handlers.

    `commit` is that of the runtime's source, or empty if a package's version names it.
    """
    cluster = node.cluster
    cluster.namespace(NAMESPACE)
    for each in provoked:
        cluster.create(_RUNTIME_CLASSES, runtime_class(each.provocation))
    wrapped = [cell.condition for cell in cells if cell.condition.is_wrapped]
    driver = Driver(
        cluster,
        NAMESPACE,
        node.images.busybox,
        in_flight=settings.in_flight,
        announce=announce,
    )
    if wrapped:
        with running_podsettle(cluster, node.images.linger, wrapped, node.images.busybox):
            outcome = driver.run(cells, settings.seconds)
    else:
        outcome = driver.run(cells, settings.seconds)
    runtime = f"{node.runtime.name}://{node.runtime.version}"
    if not outcome.complete:
        announce(f"{runtime}: the time was over before all cells were complete")
    return _result(runtime, commit, outcome, provoked)


def _result(
    runtime: str, commit: str, outcome: Outcome, provoked: Sequence[Provoked]
) -> RuntimeResult:
    logs = {
        each.provocation: each.calls.read_text().splitlines() if each.calls.exists() else []
        for each in provoked
    }
    handlers = {provocation: read_calls(log) for provocation, log in logs.items()}
    for provocation, calls in handlers.items():
        if calls.starts == 0:
            raise RaceError(
                f"{runtime}: provocation {provocation}: the runtime started no container by its "
                "handler, so nothing was provoked"
            )
    return RuntimeResult(
        runtime=runtime,
        commit=commit,
        counts=counts_of(outcome.seen),
        seconds=round(outcome.seconds),
        complete=outcome.complete,
        handlers=handlers,
        exposure=summarize(each for log in logs.values() for each in read_exposures(log)),
    )
