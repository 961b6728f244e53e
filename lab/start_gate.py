"""Jobs that start too early, and what the gates cost, on a real node with containerd.

An agent, a network policy and DNS answer late. Jobs whose program does not retry then fail. The
same Jobs with a gate wait. In a second part everything answers at once, and the time from a pod's
creation until its main container runs shows the price of the gates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import fmean
from typing import NamedTuple

import click

from lab.cluster import (
    NAMESPACE,
    POLICY_LABEL,
    make_pod,
    policy,
    policy_name,
    running_podsettle,
    start_times,
)
from lab.report import Json, Outcome, Row, Table, added, experiment, rate, values
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
from tests.support.node.pods import pod_path
from tests.support.waiting import await_that
from tools.build import announce

# Half of the Jobs have a gate. The programs of the others have to fail before the agent answers,
# so no more Jobs start at the same time.
_PAIRS_AT_ONCE = 8
_PODS_AT_ONCE = 3
_TIMEOUT_SECONDS = 120.0
_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


class Late(NamedTuple):
    """Something that answers late, and a program that needs it and does not retry."""

    policy: str
    title: str
    target: Json
    script: str
    seconds: float


LATE = (
    Late("agent", "an agent, 10 s late", {"tcp": f"{AGENT_ADDRESS}:80"}, PROGRAMS["agent"], 10.0),
    Late("net", "a network policy, 8 s late", {"tcp": SERVER}, PROGRAMS["network policy"], 8.0),
    Late("dns", "DNS, 8 s late", {"dns": NAME}, PROGRAMS["DNS"], 8.0),
)
NOTHING, EMPTY = "no init container", "an empty init container"
_TARGETS = [{"tcp": f"{AGENT_ADDRESS}:80"}, {"http": f"http://{SERVER}/"}, {"dns": NAME}]
_GATES: Mapping[str, Json] = {
    "startGate": {"startGate": {"waitFor": _TARGETS}},
    "kubeletGate": {"kubeletGate": {}},
    "startGate and kubeletGate": {"startGate": {"waitFor": _TARGETS}, "kubeletGate": {}},
}


@click.command("start-gate")
@click.option("--jobs", type=click.IntRange(1), default=100, help="Of each kind.")
@click.option("--pods", type=click.IntRange(1), default=100, help="Of each kind.")
@experiment
def start_gate(jobs: int, pods: int) -> Outcome:
    """Count Jobs that fail without and with startGate, and time starts."""
    # On a busy machine, pods start late too.
    late_gates = {
        each.policy: {"startGate": {"waitFor": [each.target], "timeout": "60s"}} for each in LATE
    }
    gates = {policy_name(kind): remedies for kind, remedies in _GATES.items()}
    policies = [policy(name, remedies) for name, remedies in (late_gates | gates).items()]
    failures = Table("Jobs that failed")
    starts = Table("The time from a pod's creation until its main container runs")
    with RealNode.start(Containerd("2.4")) as node, running_podsettle(node, policies):
        for late in LATE:
            without, with_gate = _failures(node, late, jobs)
            failures.rows.append(
                {
                    "what answers late": late.title,
                    "without a gate": rate(without, jobs),
                    "with a gate": rate(with_gate, jobs),
                }
            )
        kinds = {kind: _pod(node, kind) for kind in (NOTHING, EMPTY, *_GATES)}
        with agent_after(0), serving():
            times = start_times(node, kinds, pods, _PODS_AT_ONCE)
        for kind, seconds in times.items():
            row: Row = {"pod": kind, "main runs after": values(seconds, "s", fmean)}
            if kind != NOTHING:
                row["added"] = added(seconds, times[NOTHING])
            if kind in _GATES:
                row["beside an empty init container"] = added(seconds, times[EMPTY])
            starts.rows.append(row)
    facts = {"pairs of Jobs at once": str(_PAIRS_AT_ONCE), "pods at once": str(_PODS_AT_ONCE)}
    return Outcome([failures, starts], facts)


def _pod(node: RealNode, kind: str) -> Json:
    main = {"name": "main", "image": node.images.busybox, "command": ["sleep", "600"]}
    empty = {"name": "empty", "image": node.images.linger, "command": ["/linger", "--version"]}
    return make_pod(
        "gate",
        [main],
        [empty] if kind == EMPTY else [],
        policy=policy_name(kind) if kind in _GATES else "",
    )


def _failures(node: RealNode, late: Late, jobs: int) -> tuple[int, int]:
    """Return how many Jobs fail without and with a gate. Both kinds run side by side."""
    failed = {"": 0, late.policy: 0}
    for done in range(0, jobs, _PAIRS_AT_ONCE):
        with (
            agent_after(late.seconds)
            if late.policy == "agent"
            else late_for_new_pods(node, NAMESPACE, late.seconds)
        ):
            for policy in [*failed] * min(_PAIRS_AT_ONCE, jobs - done):
                node.cluster.create(_JOBS, _job(node, late.script, policy))
            found = _await_jobs(node)
        for policy in failed:
            failed[policy] += found[policy]
        node.cluster.request("DELETE", f"{_JOBS}?propagationPolicy=Background")
        await_that(
            lambda: not node.cluster.request("GET", pod_path(NAMESPACE)).body["items"],
            "the pods are gone",
            _TIMEOUT_SECONDS,
        )
        announce(f"{late.title}: Jobs failed without and with a gate: {failed}")
    return failed[""], failed[late.policy]


def _job(node: RealNode, script: str, policy: str) -> Json:
    container = {"name": "main", "image": node.images.busybox, "command": ["sh", "-c", script]}
    pod = make_pod("job", [container], policy=policy)
    template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "job-", "namespace": NAMESPACE},
        "spec": {"backoffLimit": 0, "template": template},
    }


def _await_jobs(node: RealNode) -> Counter[str]:
    """Wait for the end of all Jobs, and return how many have failed of each policy."""

    def jobs() -> list[Json]:
        found: list[Json] = node.cluster.request("GET", _JOBS).body["items"]
        return found

    await_that(
        lambda: all(_conditions(job) & {"Complete", "Failed"} for job in jobs()),
        "the Jobs have ended",
        _TIMEOUT_SECONDS,
    )
    labels = (
        job["spec"]["template"]["metadata"].get("labels", {})
        for job in jobs()
        if "Failed" in _conditions(job)
    )
    return Counter(each.get(POLICY_LABEL, "") for each in labels)


def _conditions(job: Json) -> set[str]:
    conditions = job["status"].get("conditions", ())
    return {each["type"] for each in conditions if each["status"] == "True"}
