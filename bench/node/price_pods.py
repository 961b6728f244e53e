"""The pods of `make price`: the times from their creation until their main containers run.

A few pods start at the same time, in a random order. One after the other, they would take an hour.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from race.cells import DEFAULT_LIFETIME_MS, Condition, Delivery, Kind, Provocation
from race.nodes import CrioSubject
from race.pods import POLICY_LABEL, policy_name
from race.podsettle import NAMESPACE, running_podsettle
from tests.support.node.images import NodeImages, directory
from tests.support.node.node import RealNode
from tools.crio import AFFECTED

Json = dict[str, Any]
Announce = Callable[[str], None]

GATE = "PLEGOnDemandRelist"
"""On by default from Kubernetes 1.36 on. Off, the kubelet behaves as before."""
COUNTS = (1, 3)
"""Init containers of the pods."""
AT_ONCE = 3
"""Pods at the same time. They leave half of two cores idle."""
_POLL_SECONDS = 0.02
# The order is the same in each run.
_SEED = 17


def _condition(delivery: Delivery, lifetime_ms: int) -> Condition:
    return Condition(Provocation.NATURAL, delivery, lifetime_ms, Kind.INIT)


NOT_WRAPPED = _condition(Delivery.NONE, 0)
CONDITIONS = (
    NOT_WRAPPED,
    *(_condition(Delivery.SHELL, lifetime) for lifetime in (250, DEFAULT_LIFETIME_MS)),
    _condition(Delivery.IMAGE_VOLUME, DEFAULT_LIFETIME_MS),
    _condition(Delivery.BINARY, DEFAULT_LIFETIME_MS),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two means, in seconds."""

    seconds: float
    standard_error: float
    """Not a number if a mean is of one value."""


@dataclass(frozen=True, slots=True)
class Starts:
    """The times that the pods of one kind took to start."""

    on_demand: bool
    """Whether the kubelet's gate is on."""
    condition: Condition
    seconds: Mapping[int, tuple[float, ...]]
    """From the creation until the main container runs, by the number of init containers."""

    def minus(self, base: Starts, count: int) -> Difference:
        """Return the difference to other pods with as many init containers."""
        own, other = self.seconds[count], base.seconds[count]
        return Difference(
            fmean(own) - fmean(other), sqrt(_squared_error(own) + _squared_error(other))
        )


def _squared_error(values: tuple[float, ...]) -> float:
    return variance(values) / len(values) if len(values) > 1 else float("nan")


def measure(pods: int, scratch: Path, announce: Announce) -> list[Starts]:
    """Time the pods on a node with the affected CRI-O, with the kubelet's gate on and off."""
    found = []
    images = NodeImages.of(directory(announce))
    with CrioSubject(AFFECTED).start(scratch, images) as (node, _):
        node.cluster.namespace(NAMESPACE)
        wrapped = [condition for condition in CONDITIONS if condition.is_wrapped]
        with running_podsettle(node.cluster, images.linger, wrapped, images.busybox):
            for on_demand in (False, True):
                node.kubelet.restart(featureGates={GATE: on_demand})
                # The first pod of a kubelet also waits for its caches.
                _start(node, NOT_WRAPPED, COUNTS[0])
                found += _measure(node, on_demand, pods, announce)
    return found


def _measure(node: RealNode, on_demand: bool, pods: int, announce: Announce) -> list[Starts]:
    kinds = [(condition, count) for condition in CONDITIONS for count in COUNTS]
    times: dict[tuple[Condition, int], list[float]] = {kind: [] for kind in kinds}
    order = random.Random(_SEED)
    # All kinds of pods in each round, so that a busy minute of the machine is spread over them. In
    # a fixed order, the same kind would always start while the kubelet removes the same other one.
    queue = [kind for _ in range(pods) for kind in order.sample(kinds, len(kinds))]
    with ThreadPoolExecutor(AT_ONCE) as starters:
        results = starters.map(lambda kind: _start(node, *kind), queue)
        for number, (kind, seconds) in enumerate(zip(queue, results, strict=True), 1):
            times[kind].append(seconds)
            if number % len(kinds) == 0:
                done = f"round {number // len(kinds)} of {pods}"
                announce(f"{GATE}={str(on_demand).lower()}: {done}")
    return [
        Starts(on_demand, condition, {count: tuple(times[condition, count]) for count in COUNTS})
        for condition in CONDITIONS
    ]


def _start(node: RealNode, condition: Condition, count: int) -> float:
    """Return the time from a pod's creation until its main container runs. Delete the pod."""
    begin = time.monotonic()
    name = node.create_pod(_pod(condition, count, node.images.busybox))["metadata"]["name"]
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
    node.await_pod(NAMESPACE, name, _main_runs)
    seconds = time.monotonic() - begin
    node.cluster.request("DELETE", path)
    while node.cluster.request("GET", path).status != 404:
        time.sleep(_POLL_SECONDS)
    return seconds


def _main_runs(pod: Mapping[str, Any]) -> bool:
    statuses = pod["status"].get("containerStatuses", ())
    return any("running" in each["state"] for each in statuses)


def _pod(condition: Condition, count: int, image: str) -> Json:
    labels = {POLICY_LABEL: policy_name(condition)} if condition.is_wrapped else {}
    quick = {"image": image, "command": ["sh", "-c", "true"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "price-", "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "initContainers": [{"name": f"work-{n}", **quick} for n in range(count)],
            "containers": [{"name": "main", "image": image, "command": ["sleep", "600"]}],
        },
    }
