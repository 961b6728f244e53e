"""A release with the chart's default values that several tests use, and how a test puts it back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.e2e_pods import is_called, simple_pod
from tests.support.helm import NAMESPACE
from tests.support.helm_release import (
    ACCOUNT,
    BY_SELECTOR,
    OPT_IN,
    POLICIES,
    RELEASE,
    Installation,
    policy,
)
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.waiting import await_that

RBAC = "/apis/rbac.authorization.k8s.io/v1"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RELEASE}"
CHOSEN = {"podsettle.dev/policy": "opt-in"}
"""The labels of a namespace that opts in."""


def restart(release: Installation) -> None:
    """Kill all replicas, and start one with the arguments that the Deployment has now."""
    release.stop_all(signal.SIGKILL)
    # A killed replica does not release the Lease, and its successor would wait until it expires.
    free = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
    answer = release.cluster.request("PATCH", LEASE, free)
    assert answer.status == 200, answer.body
    release.start_ready()


def opted_in(cluster: KubeCluster, prefix: str) -> str:
    """Return a new namespace that the policy `opt-in` covers, and whose pods are settled."""
    namespace = cluster.namespace(prefix, labels=CHOSEN)
    await_that(lambda: is_called(cluster, namespace), f"pods in {namespace} are settled")
    return namespace


@contextmanager
def policy_for_every_namespace(release: Installation) -> Iterator[None]:
    """Have a second policy, and so a second webhook, while the block runs."""
    release.cluster.create(POLICIES, policy("wide", namespaceSelector={}))
    try:
        await_that(lambda: BY_SELECTOR in release.webhooks(), "the second webhook is registered")
        yield
    finally:
        release.cluster.request("DELETE", f"{POLICIES}/wide")
        await_that(lambda: set(release.webhooks()) == {OPT_IN}, "the second webhook is removed")


@contextmanager
def labelled(cluster: KubeCluster, *namespaces: str) -> Iterator[None]:
    """Let namespaces that exist opt in while the block runs."""
    try:
        for namespace in namespaces:
            cluster.namespace(namespace, labels=CHOSEN)
        yield
    finally:
        labels = {"labels": dict.fromkeys(CHOSEN)}
        for namespace in namespaces:
            cluster.request("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": labels})


def events_of_podsettle(release: Installation) -> list[Json]:
    """Return the audit events of podsettle's account."""
    return [
        event for event in release.cluster.audit_events() if event["user"]["username"] == ACCOUNT
    ]


def right(event: Json) -> tuple[str, str, str]:
    """Return the API group, resource and verb that a request needs."""
    reference = event["objectRef"]
    subresource = f"/{reference['subresource']}" if "subresource" in reference else ""
    return reference.get("apiGroup", ""), reference["resource"] + subresource, event["verb"]


def mirror_pod(namespace: str) -> Json:
    """Return a pod that a kubelet has created from a file."""
    pod = simple_pod("mirror", namespace)
    pod["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    pod["spec"] |= {"nodeName": "node", "automountServiceAccountToken": False}
    return pod


def windows_pod(namespace: str) -> Json:
    """Return a pod for nodes with Windows."""
    pod = simple_pod("windows", namespace)
    pod["spec"]["os"] = {"name": "windows"}
    return pod
