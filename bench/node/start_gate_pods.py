"""The Jobs and pods of `make start-gate`."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import NormalDist, fmean, variance
from typing import Any

from tests.support.node.containerd import Containerd
from tests.support.node.late_start import (
    AGENT_ADDRESS,
    NAME,
    PROGRAMS,
    SERVER,
    agent_after,
    late_for_new_pods,
    serving,
)
from tests.support.node.node import RealNode
from tests.support.policy_objects import POLICIES, install_crd
from tests.support.process import start_server
from tests.support.registered_webhook import registered
from tests.support.waiting import await_that
from webhook import __version__

Json = dict[str, Any]
Announce = Callable[[str], None]

AGENT_SECONDS, POLICY_SECONDS = 10.0, 8.0
JOBS_AT_ONCE = 16
"""Half of them have a gate. The programs of the others have to fail before the agent answers, so no
more Jobs start at the same time."""
PODS_AT_ONCE = 3
_JOB_TIMEOUT_SECONDS = 120.0
_POLL_SECONDS = 0.02
_LABEL = "start-gate"
# The order is the same in each run.
_SEED = 17


@dataclass(frozen=True, slots=True)
class Late:
    """Something that answers late, and a program that needs it and does not retry."""

    name: str
    target: Mapping[str, str]
    script: str


LATE = (
    Late("an agent of the node, 10 s late", {"tcp": f"{AGENT_ADDRESS}:80"}, PROGRAMS["agent"]),
    Late("a network policy, 8 s late", {"tcp": SERVER}, PROGRAMS["network policy"]),
    Late("DNS, 8 s late", {"dns": NAME}, PROGRAMS["DNS"]),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Failures:
    """How many Jobs failed, without a gate and with one."""

    late: str
    jobs: int
    without: int
    with_gate: int


NOTHING, EMPTY, START, KUBELET, BOTH = (
    "no init container",
    "an empty init container",
    "startGate",
    "kubeletGate",
    "startGate and kubeletGate",
)
KINDS = (NOTHING, EMPTY, START, KUBELET, BOTH)
_START_GATE = {
    "startGate": {
        "waitFor": [
            {"tcp": f"{AGENT_ADDRESS}:80"},
            {"http": f"http://{SERVER}/"},
            {"dns": NAME},
        ]
    }
}
_PRICED: Mapping[str, Json] = {
    START: _START_GATE,
    KUBELET: {"kubeletGate": {}},
    BOTH: {**_START_GATE, "kubeletGate": {}},
}


_CONFIDENCE = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Added:
    """What one kind of pods takes longer to start than another, in seconds."""

    mean: float
    margin: float
    """Half of the confidence interval of 95 %. Not a number for one pair."""


@dataclass(frozen=True, slots=True)
class Starts:
    """The seconds from the creation of pods until their main containers ran.

    The pods of all kinds with the same index started in the same round.
    """

    kind: str
    seconds: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean, in seconds."""
        return fmean(self.seconds)

    def minus(self, other: Starts) -> Added:
        """Return the difference to another kind. The pods of each round are a pair."""
        pairs = [one - two for one, two in zip(self.seconds, other.seconds, strict=True)]
        error = sqrt(variance(pairs) / len(pairs)) if len(pairs) > 1 else float("nan")
        return Added(fmean(pairs), _CONFIDENCE * error)


def measure(jobs: int, pods: int, announce: Announce) -> tuple[list[Failures], list[Starts]]:
    """Run the Jobs of each late start without and with a gate, and time pods of each kind."""
    with RealNode.start(Containerd("2.4")) as node, _podsettle(node) as namespace:
        failures = [_failures(node, namespace, late, jobs, announce) for late in LATE]
        with agent_after(0), serving():
            starts = _starts(node, namespace, pods, announce)
    return failures, starts


@contextmanager
def _podsettle(node: RealNode) -> Iterator[str]:
    """Run podsettle with a policy for each label. Yield a namespace for the pods."""
    remedies = {
        **{f"late-{n}": _late_gate(late) for n, late in enumerate(LATE)},
        **{_slug(kind): given for kind, given in _PRICED.items()},
    }
    install_crd(node.cluster)
    namespace = node.namespace("start-gate-")
    for label, given in remedies.items():
        spec = {
            "namespaceSelector": {},
            "podSelector": {"matchLabels": {_LABEL: label}},
            "remedies": given,
        }
        policy = {
            "apiVersion": "podsettle.dev/v1alpha1",
            "kind": "SettlePolicy",
            "metadata": {"name": label},
            "spec": spec,
        }
        node.cluster.create(POLICIES, policy)
    options = ("--linger-image", node.images.linger, "--linger-version", __version__)
    with (
        tempfile.TemporaryDirectory(prefix="podsettle-start-gate-") as certs,
        start_server(None, Path(certs), *options, kubeconfig=node.cluster.kubeconfig) as server,
        registered(node.cluster, "podsettle", f"{server.url}/mutate", server.ca.read_bytes()),
    ):
        for label in remedies:
            probe = _pod(node, namespace, "true", {_LABEL: label})

            def is_settled(probe: Json = probe) -> bool:
                answer = node.cluster.create_pod(probe, dry_run=True)
                return "initContainers" in answer.body.get("spec", {})

            await_that(is_settled, f"podsettle applies policy {label}")
        yield namespace


def _slug(kind: str) -> str:
    return kind.lower().replace(" ", "-")


def _late_gate(late: Late) -> Json:
    # On a busy machine, pods start late too.
    return {"startGate": {"waitFor": [dict(late.target)], "timeout": "60s"}}


def _failures(
    node: RealNode, namespace: str, late: Late, jobs: int, announce: Announce
) -> Failures:
    """Return how many of the Jobs fail. Jobs with and without a gate run side by side."""
    labels = {False: {}, True: {_LABEL: f"late-{LATE.index(late)}"}}
    failed = {False: 0, True: 0}
    pairs_at_once = JOBS_AT_ONCE // 2
    for done in range(0, jobs, pairs_at_once):
        pairs = min(pairs_at_once, jobs - done)
        with _made_late(node, namespace, late):
            created = [
                (gated, _create_job(node, namespace, late.script, labels[gated]))
                for gated in [False, True] * pairs
            ]
            for gated, name in created:
                failed[gated] += _has_failed(node, namespace, name)
        _delete_jobs(node, namespace)
        announce(
            f"{late.name}: of {done + pairs} Jobs, failed without {failed[False]}, "
            f"with a gate {failed[True]}"
        )
    return Failures(late.name, jobs, failed[False], failed[True])


def _made_late(node: RealNode, namespace: str, late: Late) -> AbstractContextManager[None]:
    if AGENT_ADDRESS in late.target.get("tcp", ""):
        return agent_after(AGENT_SECONDS)
    return late_for_new_pods(node, namespace, POLICY_SECONDS)


def _create_job(node: RealNode, namespace: str, script: str, labels: Mapping[str, str]) -> str:
    pod = _pod(node, namespace, script, labels)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "job-", "namespace": namespace},
        "spec": {
            "backoffLimit": 0,
            "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
        },
    }
    created = node.cluster.create(_jobs(namespace), job)
    name: str = created["metadata"]["name"]
    return name


def _jobs(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


def _has_failed(node: RealNode, namespace: str, name: str) -> bool:
    """Wait for the end of a Job, and return whether it has failed."""
    conditions: set[str] = set()

    def has_ended() -> bool:
        status = node.cluster.request("GET", f"{_jobs(namespace)}/{name}").body["status"]
        conditions.update(
            each["type"] for each in status.get("conditions", ()) if each["status"] == "True"
        )
        return not conditions.isdisjoint({"Complete", "Failed"})

    await_that(has_ended, f"Job {name} has ended", _JOB_TIMEOUT_SECONDS)
    return "Failed" in conditions


def _delete_jobs(node: RealNode, namespace: str) -> None:
    """Delete all Jobs and their pods, and wait until the pods are gone."""
    node.cluster.request("DELETE", f"{_jobs(namespace)}?propagationPolicy=Background")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    await_that(
        lambda: not node.cluster.request("GET", pods).body["items"],
        "the pods are gone",
        _JOB_TIMEOUT_SECONDS,
    )


def _starts(node: RealNode, namespace: str, pods: int, announce: Announce) -> list[Starts]:
    """Return the times of pods of each kind. They start in a random order, some at a time."""
    order = random.Random(_SEED)
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    queue = [kind for _ in range(pods) for kind in order.sample(KINDS, len(KINDS))]
    # The first pod of a node also waits for caches.
    _start(node, namespace, EMPTY)
    with ThreadPoolExecutor(PODS_AT_ONCE) as starters:
        results = starters.map(lambda kind: _start(node, namespace, kind), queue)
        for number, (kind, seconds) in enumerate(zip(queue, results, strict=True), 1):
            times[kind].append(seconds)
            if number % len(KINDS) == 0:
                announce(f"price: round {number // len(KINDS)} of {pods}")
    return [Starts(kind, tuple(times[kind])) for kind in KINDS]


def _start(node: RealNode, namespace: str, kind: str) -> float:
    """Return the time from a pod's creation until its main container runs. Delete the pod."""
    pod = _pod(node, namespace, "sleep 600", {_LABEL: _slug(kind)} if kind in _PRICED else {})
    if kind == EMPTY:
        empty = {"name": "empty", "image": node.images.linger, "command": ["/linger", "--version"]}
        pod["spec"]["initContainers"] = [empty]
    begin = time.monotonic()
    name = node.create_pod(pod)["metadata"]["name"]
    node.await_pod(namespace, name, _main_runs)
    seconds = time.monotonic() - begin
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    node.cluster.request("DELETE", path)
    while node.cluster.request("GET", path).status != 404:
        time.sleep(_POLL_SECONDS)
    return seconds


def _main_runs(pod: Mapping[str, Any]) -> bool:
    statuses = pod["status"].get("containerStatuses", ())
    return any("running" in each["state"] for each in statuses)


def _pod(node: RealNode, namespace: str, script: str, labels: Mapping[str, str]) -> Json:
    command = ["sh", "-c", script]
    container = {"name": "main", "image": node.images.busybox, "command": command}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "pod-", "namespace": namespace, "labels": dict(labels)},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }
