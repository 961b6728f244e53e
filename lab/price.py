"""What postInitSleep adds to a pod's start, on a real node with CRI-O.

The kubelet sees the end of an init container at its next relist, once a second. From Kubernetes
1.36 on (`PLEGOnDemandRelist`) it sees the end at once if the container has ended when its start
returns. So a wrapper can cost nothing, its own lifetime, or a whole relist.
"""

from __future__ import annotations

from statistics import fmean

import click

from lab.cluster import built_crio, make_pod, policy, policy_name, running_podsettle, start_times
from lab.report import Json, Outcome, Row, Table, added, experiment, values
from tests.support.node.node import RealNode
from tools.crio import AFFECTED

GATE = "PLEGOnDemandRelist"
"""On by default from Kubernetes 1.36 on. Off, the kubelet behaves as before."""
COUNTS = (1, 3)
"""Init containers of the pods."""
# Pods at the same time. They leave half of two cores idle.
_AT_ONCE = 3
NOT_WRAPPED = "not wrapped"
_REMEDIES: dict[str, Json] = {
    "Shell, 250 ms": {"delivery": "Shell", "minLifetime": "250ms"},
    "Shell, 500 ms": {"delivery": "Shell"},
    "ImageVolume, 500 ms": {"delivery": "ImageVolume"},
    "Binary, 500 ms": {"delivery": "Binary"},
}


@click.command("price")
@click.option("--pods", type=click.IntRange(1), default=20, help="Of each kind.")
@experiment
def price(pods: int) -> Outcome:
    """Time the starts of pods by each delivery of postInitSleep."""
    runtime = built_crio(AFFECTED)
    table = Table("The time from a pod's creation until its main container runs")
    policies = [
        policy(policy_name(kind), {"postInitSleep": each}) for kind, each in _REMEDIES.items()
    ]
    with RealNode.start(runtime) as node, running_podsettle(node, policies):
        kinds = {
            f"{kind} {count}": _pod(kind, count, node.images.busybox)
            for kind in (NOT_WRAPPED, *_REMEDIES)
            for count in COUNTS
        }
        for gate, kubelet in ((False, "before 1.36"), (True, "from 1.36 on")):
            node.kubelet.restart(featureGates={GATE: gate})
            times = start_times(node, kinds, pods, _AT_ONCE)
            for kind in (NOT_WRAPPED, *_REMEDIES):
                row: Row = {"kubelet": kubelet, "postInitSleep": kind}
                for count in COUNTS:
                    found, base = times[f"{kind} {count}"], times[f"{NOT_WRAPPED} {count}"]
                    row[f"{count} init"] = values(found, "s", fmean)
                    row[f"added, {count} init"] = "" if kind == NOT_WRAPPED else added(found, base)
                table.rows.append(row)
    return Outcome([table], {"CRI-O": runtime.version, "pods at the same time": str(_AT_ONCE)})


def _pod(kind: str, count: int, image: str) -> Json:
    quick = {"image": image, "command": ["sh", "-c", "true"]}
    return make_pod(
        "price",
        [{"name": "main", "image": image, "command": ["sleep", "600"]}],
        [{"name": f"work-{number}", **quick} for number in range(count)],
        policy=policy_name(kind) if kind in _REMEDIES else "",
    )
