"""Pods on the node of an experiment, podsettle with policies for them, and their start times."""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from lab.report import Json, LabError
from tests.support.factories import policy_document
from tests.support.node.crio import Crio
from tests.support.node.node import RealNode
from tests.support.node.pods import pod_path, states
from tests.support.policy_objects import POLICIES, install_crd
from tests.support.process import start_server
from tests.support.registered_webhook import registered
from tests.support.waiting import await_that
from tools.build import announce
from tools.crio import find_crio
from webhook import __version__
from webhook.core.constants import ANNOTATION_APPLIED

NAMESPACE = "lab"
"""Of all pods."""
POLICY_LABEL = "lab/policy"
"""The label by which a policy selects pods. Its value is the name of the policy."""
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
# The order of pods is the same in each run.
_SEED = 17


def built_crio(revision: str) -> Crio:
    """Return a revision of CRI-O as the runtime of a node. Raise LabError if it is not built."""
    build = find_crio(revision)
    if build is None:
        raise LabError(f"CRI-O {revision} is not built: python -m tools.crio {revision}")
    return Crio(build)


def policy(name: str, remedies: Json) -> Json:
    """Return a SettlePolicy for the pods that choose it by `make_pod`."""
    return policy_document(
        name, remedies=remedies, podSelector={"matchLabels": {POLICY_LABEL: name}}
    )


def policy_name(kind: str) -> str:
    """Return the name of the policy for a kind of pods, whose title in a table is `kind`."""
    return "-".join(re.findall(r"\w+", kind.lower()))


def make_pod(
    name: str, containers: Sequence[Json], init: Sequence[Json] = (), *, policy: str = ""
) -> Json:
    """Return a pod. The name is a prefix. `policy` is the name of the one that settles it."""
    labels = {POLICY_LABEL: policy} if policy else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": f"{name}-", "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "initContainers": list(init),
            "containers": list(containers),
        },
    }


@contextmanager
def running_podsettle(node: RealNode, policies: Iterable[Json]) -> Iterator[None]:
    """Run podsettle with some policies, and make the namespace of the pods.

    Each policy has taken effect when the block begins.
    """
    cluster, names = node.cluster, []
    node.namespace(NAMESPACE)
    install_crd(cluster)
    for each in policies:
        cluster.create(POLICIES, each)
        names.append(each["metadata"]["name"])
    options = ("--linger-image", node.images.linger, "--linger-version", __version__)
    with (
        tempfile.TemporaryDirectory(prefix="podsettle-lab-") as certs,
        start_server(None, Path(certs), *options, kubeconfig=cluster.kubeconfig) as server,
        registered(cluster, "podsettle", f"{server.url}/mutate", server.ca.read_bytes()),
    ):
        quick = {"image": node.images.busybox, "command": ["sh", "-c", "true"]}
        for name in names:
            probe = make_pod(
                "p", [{"name": "main", **quick}], [{"name": "i", **quick}], policy=name
            )

            def is_settled(probe: Json = probe) -> bool:
                made = cluster.create_pod(probe, dry_run=True).body
                return ANNOTATION_APPLIED in made.get("metadata", {}).get("annotations", {})

            await_that(is_settled, f"podsettle applies policy {name}")
        yield


def delete_pod(node: RealNode, name: str) -> None:
    """Delete a pod, and wait until it is gone."""
    path = pod_path(NAMESPACE, name)
    node.cluster.request("DELETE", path)
    await_that(lambda: node.cluster.request("GET", path).status == 404, f"pod {name} is gone")


def start_times(
    node: RealNode, pods: Mapping[str, Json], rounds: int, at_once: int
) -> dict[str, tuple[float, ...]]:
    """Return the seconds from the creation of pods until their containers `main` run.

    Each round has a pod of each kind, so that a busy minute of the machine is spread over them. In
    a fixed order, the same kind would always start while the kubelet removes the same other one.
    """
    order = random.Random(_SEED)
    queue = [kind for _ in range(rounds) for kind in order.sample(list(pods), len(pods))]
    times: dict[str, list[float]] = {kind: [] for kind in pods}
    # The first pod of a kubelet also waits for its caches.
    _start(node, pods[queue[0]])
    with ThreadPoolExecutor(at_once) as starters:
        results = starters.map(lambda kind: _start(node, pods[kind]), queue)
        for number, (kind, seconds) in enumerate(zip(queue, results, strict=True), 1):
            times[kind].append(seconds)
            if number % len(pods) == 0:
                announce(f"starts: round {number // len(pods)} of {rounds}")
    return {kind: tuple(found) for kind, found in times.items()}


def _start(node: RealNode, pod: Json) -> float:
    begin = time.monotonic()
    name = node.create_pod(pod)["metadata"]["name"]
    node.await_pod(NAMESPACE, name, lambda found: "running" in states(found).get("main", {}))
    seconds = time.monotonic() - begin
    delete_pod(node, name)
    return seconds
