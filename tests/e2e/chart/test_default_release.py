"""A release with the default values: which pods are settled, and with which rights."""

from __future__ import annotations

import base64

import pytest

from tests.support.chart_release import (
    RBAC,
    events_of_podsettle,
    labelled,
    opted_in,
    right,
)
from tests.support.e2e_pods import is_called, simple_pod
from tests.support.helm import NAMESPACE
from tests.support.helm_release import (
    CONFIGURATION,
    OPT_IN,
    RELEASE,
    Installation,
)
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.service_accounts import await_grant
from tests.support.waiting import await_that

pytestmark = pytest.mark.slow


def test_podsettle_writes_the_ca_bundle_under_its_own_field_manager(release: Installation) -> None:
    (webhook,) = release.webhooks().values()
    assert b"BEGIN CERTIFICATE" in base64.b64decode(webhook["clientConfig"]["caBundle"])
    assert _manager_of(release, f'k:{{"name":"{OPT_IN}"}}', "caBundle") == "podsettle"


def _manager_of(release: Installation, entry: str, field: str) -> str:
    (found,) = (
        each["manager"]
        for each in release.get(CONFIGURATION)["metadata"]["managedFields"]
        if f"f:{field}" in each["fieldsV1"]["f:webhooks"].get(entry, {}).get("f:clientConfig", {})
    )
    manager: str = found
    return manager


def test_pods_in_an_opted_in_namespace_are_settled_and_no_others(release: Installation) -> None:
    cluster = release.cluster
    chosen = opted_in(cluster, "chosen-")
    assert not is_called(cluster, cluster.namespace("other-"))
    # podsettle's own namespace stays excluded, whatever its label.
    with labelled(cluster, NAMESPACE):
        assert not is_called(cluster, NAMESPACE)
    cluster.namespace(chosen, labels={"podsettle.dev/enabled": "false"})
    await_that(lambda: not is_called(cluster, chosen), "the label switches podsettle off")


def test_audit_log_shows_exactly_the_permissions_of_the_chart(release: Installation) -> None:
    """podsettle verifies the token of a scraper, and looks up a namespace that it does not know."""
    (replica,) = release.replicas
    stranger = release.cluster.token_for("default")
    assert replica.request("GET", "/metrics", token=stranger).status_code == 403
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE",
            "namespace": "not-there-yet",
            "object": simple_pod("pod", "not-there-yet"),
        },
    }
    answer = replica.request("POST", "/mutate?timeout=2s", content=review)
    assert answer.json()["response"]["allowed"] is True

    granted = {
        (group, resource, verb)
        for rule in _rules(release)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    def used() -> set[tuple[str, str, str]]:
        return {right(event) for event in events_of_podsettle(release) if "objectRef" in event}

    # An event is written when its request has ended, or a watch begun.
    await_that(lambda: used() >= granted, f"used: {granted - used()}")
    assert used() == granted
    forbidden = [
        f"{event['verb']} {event['requestURI']}"
        for event in events_of_podsettle(release)
        if event["responseStatus"]["code"] in (401, 403)
    ]
    assert forbidden == []


def _rules(release: Installation) -> list[Json]:
    cluster_role = release.get(f"{RBAC}/clusterroles/{RELEASE}")
    role = release.get(f"{RBAC}/namespaces/{NAMESPACE}/roles/{RELEASE}")
    return [*cluster_role["rules"], *role["rules"]]


@pytest.mark.parametrize(
    ("role", "method", "path", "other"),
    [
        (f"{RELEASE}-metrics-reader", "GET", "/metrics", ("POST", "/preview")),
        (f"{RELEASE}-previewer", "POST", "/preview", ("GET", "/metrics")),
    ],
)
def test_unbound_policy_roles_grant_what_they_name_once_bound(
    release: Installation, role: str, method: str, path: str, other: tuple[str, str]
) -> None:
    cluster = release.cluster
    namespace = cluster.namespace("reader-", service_accounts=("reader", "stranger"))
    bind(cluster, f"system:serviceaccount:{namespace}:reader", role)
    asked = {"nonResourceAttributes": {"path": path, "verb": method.lower()}}
    await_grant(cluster, f"{namespace}:reader", asked)
    (replica,) = release.replicas
    reader = cluster.token_for("reader", namespace)
    stranger = cluster.token_for("stranger", namespace)

    def status(method: str, path: str, token: str | None) -> int:
        content = simple_pod("pod") if method == "POST" else None
        return replica.request(method, path, token=token, content=content).status_code

    # The server refuses previews until its worker, which has a low priority, has started.
    await_that(lambda: status(method, path, cluster.token) == 200, "the server answers")
    assert status(method, path, reader) == 200
    assert status(*other, reader) == 403
    assert status(method, path, stranger) == 403
    assert status(method, path, None) == 401


def test_cluster_wide_viewers_read_policies_and_only_the_editor_role_writes_them(
    release: Installation,
) -> None:
    """Even `admin` must not write policies, because a policy applies to all namespaces."""
    cluster = release.cluster
    for role in ("view", "edit", "admin"):
        aggregate(cluster, role)
    namespace = cluster.namespace("tenant-")
    own = (f"{RELEASE}-policy-viewer", f"{RELEASE}-policy-editor")
    for role in ("view", "edit", "admin", *own):
        bind(cluster, f"user-{role}", role)
    bind(cluster, "user-of-a-namespace", "admin", namespace)

    def may(user: str, verb: str) -> bool:
        flags = (verb, "settlepolicies.podsettle.dev", f"--as={user}")
        answered = cluster.kubectl("auth", "can-i", *flags)
        assert answered.stdout.strip() in ("yes", "no"), answered.stderr
        return answered.stdout.strip() == "yes"

    reading, writing = {"get", "list", "watch"}, {"create", "update", "patch", "delete"}

    def rights(user: str) -> set[str]:
        return {verb for verb in reading | writing if may(user, verb)}

    def expect(user: str, verbs: set[str]) -> None:
        await_that(lambda: rights(user) == verbs, f"{user}: {rights(user)}, not {verbs}")

    for role in ("view", "edit", "admin", own[0]):
        expect(f"user-{role}", reading)
    expect(f"user-{own[1]}", reading | writing)
    expect("user-of-a-namespace", set())


def bind(cluster: KubeCluster, user: str, role: str, namespace: str = "") -> None:
    """Grant a ClusterRole to a user, in the cluster or in one namespace."""
    kind = ("rolebinding", "-n", namespace) if namespace else ("clusterrolebinding",)
    flags = (f"--clusterrole={role}", f"--user={user}")
    done = cluster.kubectl("create", *kind, user.replace(":", "-"), *flags)
    assert done.returncode == 0, done.stderr


def aggregate(cluster: KubeCluster, role: str) -> None:
    """Do the work of the controller for aggregated ClusterRoles: unite the selected rules."""
    path = f"{RBAC}/clusterroles"
    found = cluster.request("GET", f"{path}/{role}").body
    rules = []
    for selector in found["aggregationRule"]["clusterRoleSelectors"]:
        (label,) = selector["matchLabels"].items()
        selected = cluster.request("GET", f"{path}?labelSelector={label[0]}%3D{label[1]}").body
        rules += [rule for each in selected["items"] for rule in each["rules"] or ()]
    status, answer, _ = cluster.request("PUT", f"{path}/{role}", found | {"rules": rules})
    assert status == 200, answer
