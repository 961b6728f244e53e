"""Planted faults of one installation: doctor finds each of them, and names their repair.

The commands of the named section of docs/operations.md run as they stand there. Only the values
that a user has to fill in are replaced (`DoctorRelease.follow`). What controllers would do then,
`ReplicaController` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from tests.support.doctor_release import DoctorRelease, Line, repair_commands
from tests.support.e2e_pods import init_names, simple_pod
from tests.support.helm import NAMESPACE
from tests.support.helm_release import (
    CONFIGURATION,
    OPT_IN,
    OWN,
    POLICIES,
    RELEASE,
    ROUTING,
    installed,
    policy,
)
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.paths import CHART
from tests.support.waiting import await_that
from webhook.tls.issuing import issue_ca

pytestmark = pytest.mark.slow

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/settlepolicies.podsettle.dev"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RELEASE}"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoctorRelease]:
    directory = tmp_path_factory.mktemp("release")
    with KubeCluster.start(ROUTING) as cluster, installed(cluster, directory) as installation:
        found = DoctorRelease(installation, directory)
        found.install(*found.values)
        assert found.faults("--wait", "60s") == []
        yield found


def patch(release: DoctorRelease, path: str, body: object) -> Json:
    status, answer, _ = release.cluster.request("PATCH", path, body)
    assert status == 200, answer
    return answer


def upgrade(release: DoctorRelease, *flags: str) -> None:
    """Upgrade the release with further values."""
    release.installation.helm("upgrade", RELEASE, CHART, "--reset-then-reuse-values", *flags)


def change(op: str, path: str, value: object) -> Callable[[DoctorRelease], None]:
    """Return a function that changes a field of the opt-in webhook."""

    def plant(release: DoctorRelease) -> None:
        operation = {"op": op, "path": f"/webhooks/0/{path}", "value": value}
        patch(release, CONFIGURATION, [operation])

    return plant


def exclusions(release: DoctorRelease) -> tuple[str, list[str]]:
    """Return the path of the names that the opt-in webhook excludes, and these names."""
    (webhook,) = release.installation.get(CONFIGURATION)["webhooks"]
    ((index, names),) = (
        (number, each["values"])
        for number, each in enumerate(webhook["namespaceSelector"]["matchExpressions"])
        if each["key"] == "kubernetes.io/metadata.name"
    )
    return f"/webhooks/0/namespaceSelector/matchExpressions/{index}/values", names


def include(release: DoctorRelease, namespace: str, *further: Json) -> None:
    """Take a namespace out of the exclusions of the opt-in webhook."""
    path, names = exclusions(release)
    names.remove(namespace)
    patch(release, CONFIGURATION, [{"op": "replace", "path": path, "value": names}, *further])


def expired_certificate(release: DoctorRelease) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    release.new_certificate(yesterday, days=0.5)
    release.write_secret()
    release.controller.mount()
    release.new_certificate()


def wrong_bundle(release: DoctorRelease) -> None:
    other = issue_ca("other", timedelta(days=1)).certificate_pem
    release.write(other, "other.crt")
    bundle = f"--set-file=webhook.caBundle={release.directory / 'other.crt'}"
    upgrade(release, "--server-side=true", bundle)


def covered_namespace_excluded(release: DoctorRelease) -> None:
    path, _ = exclusions(release)
    patch(release, CONFIGURATION, [{"op": "add", "path": f"{path}/-", "value": "ci"}])


def old_crd(release: DoctorRelease) -> None:
    schema = "/spec/versions/0/schema/openAPIV3Schema"
    path = f"{schema}/properties/spec/properties/imageConfig"
    patch(release, CRD, [{"op": "remove", "path": path}])


def missing_class(release: DoctorRelease) -> None:
    remedies = {"runtimeClass": {"name": "overlay-volatile"}}
    release.cluster.create(POLICIES, policy("volatile", remedies=remedies))


def missing_handler(release: DoctorRelease) -> None:
    for name, handlers in (("a", ["", "runc"]), ("b", ["", "runc", "crun"])):
        release.cluster.create("/api/v1/nodes", {"metadata": {"name": name}})
        listed = [{"name": handler} for handler in handlers]
        patch(release, f"/api/v1/nodes/{name}/status", {"status": {"runtimeHandlers": listed}})
    release.cluster.create(CLASSES, {"metadata": {"name": "sandboxed"}, "handler": "kata"})
    remedies = {"runtimeClass": {"name": "sandboxed"}}
    release.cluster.create(POLICIES, policy("sandboxed", remedies=remedies))


def missing_permission(release: DoctorRelease) -> None:
    path = f"{RBAC}/clusterroles/{RELEASE}"
    rules = release.installation.get(path)["rules"]
    patch(release, path, {"rules": [rule for rule in rules if rule["resources"] != ["nodes"]]})


def one_replica(release: DoctorRelease) -> None:
    release.installation.shell(f"kubectl -n {NAMESPACE} scale deployment/{RELEASE} --replicas=1")
    release.controller.reconcile()


def lease_of_a_replica_that_is_gone(release: DoctorRelease) -> None:
    """Of a duration after which no test would see another replica take over."""
    held = {"holderIdentity": "podsettle-5d4f-gone_0123456789ab", "leaseDurationSeconds": 36_000}
    patch(release, LEASE, {"spec": held})


def deleted_service(release: DoctorRelease) -> None:
    """And new replicas: the API server would go on using the connections that it has open."""
    release.cluster.request("DELETE", f"{OWN}/services/{RELEASE}")
    release.controller.restart()


def no_helper_image(release: DoctorRelease) -> None:
    upgrade(release, "--set=lingerImage=none")
    release.controller.reconcile()


def helper_that_is_too_old(release: DoctorRelease) -> None:
    limits = policy("limits", remedies={"openFiles": {"soft": 65536}})
    release.cluster.create(POLICIES, limits)
    upgrade(release, "--set=lingerImage=registry.example/linger:0.1.0")
    release.controller.reconcile()


def unpullable_helper(release: DoctorRelease) -> None:
    """As the kubelet reports it for a pod that got the helper."""
    pod = release.cluster.create_pod(simple_pod("waits", "ci")).body
    assert "podsettle-linger" in init_names(pod)
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    status = {
        "name": "podsettle-linger", "image": "", "imageID": "", "ready": False, "restartCount": 0,
        "state": {"waiting": waiting},
    }  # fmt: skip
    patch(
        release, "/api/v1/namespaces/ci/pods/waits/status",
        {"status": {"phase": "Pending", "initContainerStatuses": [status]}},
    )  # fmt: skip


def unaccepted_policy(release: DoctorRelease) -> None:
    """Stored while the CRD had no schema."""
    versions = release.installation.get(CRD)["spec"]["versions"]
    loose = deepcopy(versions)
    properties = loose[0]["schema"]["openAPIV3Schema"]["properties"]
    properties["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    loose[0]["additionalPrinterColumns"] = []
    patch(release, CRD, {"spec": {"versions": loose}})
    bad = policy("bad", remedies={"postInitSleep": {"minLifetime": "soon"}})
    await_that(
        lambda: release.cluster.request("POST", POLICIES, bad).status == 201,
        "the API server accepts a policy without validation",
    )
    patch(release, CRD, {"spec": {"versions": versions}})


class Fault(NamedTuple):
    """A fault, the check that finds it, and a part of what the check says."""

    plant: Callable[[DoctorRelease], object]
    check: str
    says: str
    clean_up: tuple[str, ...] = ()
    """The objects that are deleted afterwards."""
    policy: str = ""
    pod: str = ""


FAULTS = {
    "expired certificate": Fault(expired_certificate, "certificate", "tls.crt: expired at"),
    "wrong bundle": Fault(wrong_bundle, "registration", "unable to get local issuer certificate"),
    "deleted configuration": Fault(
        lambda release: release.cluster.request("DELETE", CONFIGURATION),
        "webhook configuration",
        "does not exist",
    ),
    "own namespace in scope": Fault(
        lambda release: include(release, NAMESPACE),
        "exclusions",
        f"{OPT_IN} includes podsettle's own",
    ),
    "control plane in scope": Fault(
        lambda release: include(
            release,
            "kube-system",
            {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"},
        ),
        "exclusions",
        f"{OPT_IN} includes kube-system",
    ),
    "foreign objectSelector": Fault(
        change("replace", "objectSelector", {"matchLabels": {"a": "b"}}),
        "reachability",
        "no objectSelector of podsettle",
    ),
    "covered namespace excluded": Fault(
        covered_namespace_excluded, "reachability", "excludes namespace ci by name"
    ),
    "rules without creation": Fault(
        change("replace", "rules/0/operations", ["UPDATE"]),
        "reachability",
        "is for the creation of pods",
    ),
    "foreign match condition": Fault(
        change("add", "matchConditions", [{"name": "never", "expression": "false"}]),
        "reachability",
        "may leave them out: never",
    ),
    "wrong path": Fault(
        change("replace", "clientConfig/service/path", "/other"),
        "webhook configuration",
        "443/other instead of Service",
    ),
    "old CRD": Fault(old_crd, "crd", "is older than podsettle and lacks"),
    "missing class": Fault(
        missing_class, "runtime classes", "overlay-volatile", (f"{POLICIES}/volatile",), "volatile"
    ),
    "missing handler": Fault(
        missing_handler,
        "runtime classes",
        "no node has handler kata",
        (f"{POLICIES}/sandboxed", f"{CLASSES}/sandboxed", "/api/v1/nodes/a", "/api/v1/nodes/b"),
        "sandboxed",
    ),
    "missing permission": Fault(
        missing_permission, "permissions", "lacks: list nodes, watch nodes"
    ),
    "one replica": Fault(one_replica, "replicas", "one replica only"),
    "Lease of a replica that is gone": Fault(
        lease_of_a_replica_that_is_gone, "lease", "gone_0123456789ab holds it for 36000 s"
    ),
    "deleted Service": Fault(
        deleted_service, "reachability", f"Service {NAMESPACE}/{RELEASE} does not exist"
    ),
    "crashed replicas": Fault(
        lambda release: release.controller.crash(), "readiness", "does not answer"
    ),
    "no helper image": Fault(no_helper_image, "helper image", "postInitSleep of opt-in"),
    "helper that is too old": Fault(
        helper_that_is_too_old,
        "helper image",
        "0.1.0 has version 0.1.0, and podsettle skips what needs a newer one: openFiles of limits",
        (f"{POLICIES}/limits",),
    ),
    "unpullable helper": Fault(
        unpullable_helper, "helper pull", "Back-off pulling image", pod="waits"
    ),
    "unaccepted policy": Fault(
        unaccepted_policy, "policies", "minLifetime", (f"{POLICIES}/bad",), "bad"
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=[*FAULTS])
def test_planted_fault_is_found_alone_and_mended_by_the_section_it_names(
    release: DoctorRelease, fault: Fault
) -> None:
    fault.plant(release)
    found: list[Any] = []

    def alone() -> bool:
        # Replicas read the files of a Secret and the configuration with a short delay.
        found[:] = release.faults()
        return {line.check for line in found} == {fault.check}

    try:
        with suppress(AssertionError):
            await_that(alone, "only the planted fault is found")
        assert {line.check for line in found} == {fault.check}, found
        assert all(fault.says in line.result for line in found), found
        chosen = f"--kubeconfig={release.cluster.kubeconfig}"
        assert all(chosen in line.command for line in found if line.command)
        values = {"POLICY": fault.policy, "NAMESPACE": "ci", "POD": fault.pod}
        for repair in dict.fromkeys(line.repair for line in found):
            for command in repair_commands(repair):
                # The message names the value of the policy, and how it is written.
                release.follow(command, "sed -i s/soon/500ms/", **values)
        assert release.faults("--wait", "60s") == []
    finally:
        for path in fault.clean_up:
            release.cluster.request("DELETE", path)


def test_refused_pods_are_a_fault_whose_section_lets_pods_be_created(
    release: DoctorRelease,
) -> None:
    upgrade(release, "--server-side=true", "--set=webhook.failurePolicy=Fail")

    def is_created() -> bool:
        return release.cluster.create_pod(simple_pod("later", "ci"), dry_run=True).status == 201

    def failed_calls() -> Line:
        (line,) = (each for each in release.doctor() if each.check == "failed calls")
        return line

    # By hand, which a later upgrade has to overwrite.
    release.installation.shell(f"kubectl -n {NAMESPACE} scale deployment/{RELEASE} --replicas=3")
    release.controller.crash()
    await_that(lambda: not is_created(), "the API server refuses pods")
    refused = failed_calls()
    assert refused.state == "fault"
    assert "failurePolicy is Fail, and no replica is ready: " in refused.result
    for command in repair_commands(refused.repair):
        release.installation.shell(command)
    await_that(is_created, "pods are created without podsettle")
    assert failed_calls().state == "warning"
    for line in release.faults():
        for command in repair_commands(line.repair):
            release.follow(command)
    assert release.faults("--wait", "60s") == []
