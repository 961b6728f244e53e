"""podsettle on a node's cluster, with a policy for each wrapped condition."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from race.cells import Condition
from race.pods import make_pod, policy, policy_name
from tests.support.kube.cluster import KubeCluster
from tests.support.policy_objects import POLICIES, install_crd
from tests.support.process import start_server
from tests.support.registered_webhook import registered
from tests.support.waiting import await_that

NAMESPACE = "race"
_APPLIED = "podsettle.dev/applied"


@contextmanager
def running_podsettle(
    cluster: KubeCluster, linger_image: str, conditions: Sequence[Condition], image: str
) -> Iterator[None]:
    """Run podsettle with a policy for each condition, for pods in `NAMESPACE`."""
    install_crd(cluster)
    policies = {policy_name(condition): policy(condition, NAMESPACE) for condition in conditions}
    for body in policies.values():
        cluster.create(POLICIES, body)
    with (
        tempfile.TemporaryDirectory(prefix="podsettle-race-") as certs,
        start_server(
            None, Path(certs), "--linger-image", linger_image, kubeconfig=cluster.kubeconfig
        ) as server,
        registered(cluster, "podsettle", f"{server.url}/mutate", server.ca.read_bytes()),
    ):
        for condition in conditions:
            _await_policy(cluster, condition, image)
        yield


def _await_policy(cluster: KubeCluster, condition: Condition, image: str) -> None:
    pod = make_pod(condition, image)
    pod["metadata"]["namespace"] = NAMESPACE

    def is_settled() -> bool:
        answer = cluster.create_pod(pod, dry_run=True)
        return _APPLIED in answer.body.get("metadata", {}).get("annotations", {})

    await_that(is_settled, f"podsettle applies policy {policy_name(condition)}")
