"""Tests of native policies in force on a real API server, beside those that compare pods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.e2e_pods import create, normal, simple_pod
from tests.support.factories import container, policy, policy_document, view
from tests.support.kube.cluster import Answer, Json, KubeCluster
from tests.support.live_cluster import environment_with
from tests.support.native_policies import API_VERSION, in_force
from tests.support.policy_objects import POLICIES, install_crd
from tests.support.process import podsettle
from tests.support.waiting import await_that
from webhook.core.constants import LABEL_NAMESPACE_NAME, SKIP_RELABEL_ANNOTATIONS
from webhook.core.export.native_policies import export
from webhook.core.policy.model import SettlePolicy

pytestmark = pytest.mark.slow

SELINUX = {"seLinuxChangePolicy": "Recursive"}
OWN = "test-own-namespace"
FOR_WINDOWS = {"securityContext": {"windowsOptions": {"runAsUserName": "u"}}}


@contextmanager
def exported(cluster: KubeCluster, *policies: SettlePolicy, guard: bool = False) -> Iterator[None]:
    """Put policies in force as native ones, until the block ends."""
    seen = view(*policies)
    found = export(seen, OWN, api_version=API_VERSION, guard=guard)
    assert not found.not_native
    with in_force(cluster, [each for policy in found.policies for each in policy.documents]):
        yield


@pytest.fixture(scope="module")
def everywhere(native_cluster: KubeCluster) -> Iterator[KubeCluster]:
    """A cluster with a policy for every namespace, which names one protected namespace."""
    named = {
        "matchExpressions": [
            {
                "key": LABEL_NAMESPACE_NAME,
                "operator": "In",
                "values": ["default", "kube-named", "kube-off", "switched-off", OWN],
            }
        ]
    }
    labels = {"kube-off": {"podsettle.dev/enabled": "false"}}
    labels["switched-off"] = labels["kube-off"]
    for name in ("kube-named", "kube-off", "kube-opted-in", "switched-off", OWN):
        native_cluster.namespace(name, labels=labels.get(name, {"podsettle.dev/policy": "p"}))
    with exported(native_cluster, policy("p", remedies=SELINUX, namespaceSelector=named)):
        yield native_cluster


def is_changed(cluster: KubeCluster, pod: Json) -> bool:
    made = create(cluster, pod, dry_run=True)
    return "seLinuxChangePolicy" in made["spec"]["securityContext"]


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        ("default", True),
        ("kube-named", True),
        ("kube-off", False),
        ("kube-opted-in", False),
        ("switched-off", False),
        (OWN, False),
    ],
)
def test_protected_and_disabled_namespaces_are_left_alone(
    namespace: str, expected: bool, everywhere: KubeCluster
) -> None:
    assert is_changed(everywhere, simple_pod("a", namespace)) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"os": {"name": "windows"}},
        {"nodeSelector": {"kubernetes.io/os": "windows"}},
        {"nodeSelector": {"beta.kubernetes.io/os": "windows"}},
        {"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}},
        FOR_WINDOWS,
        {"containers": [container("a", "cmd", **FOR_WINDOWS)]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_pod_for_windows_is_left_alone(fields: Json, everywhere: KubeCluster) -> None:
    pod = simple_pod("a")
    pod["spec"] |= fields
    assert not is_changed(everywhere, pod)


def test_pod_with_more_containers_than_an_expression_may_read_is_left_alone(
    everywhere: KubeCluster,
) -> None:
    pod = simple_pod("a")
    for count, expected in ((99, True), (100, False)):
        pod["spec"]["initContainers"] = [container(f"c-{n}", "/c") for n in range(count)]
        assert is_changed(everywhere, pod) == expected


@pytest.mark.parametrize(("length", "expected"), [(250_000, True), (261_000, False)])
def test_pod_whose_annotations_leave_no_space_is_left_alone(
    length: int, expected: bool, everywhere: KubeCluster
) -> None:
    pod = simple_pod("a")
    pod["metadata"]["annotations"] = {"example.com/a": "x" * length}
    assert is_changed(everywhere, pod) == expected


@pytest.fixture(scope="module")
def namespace(native_cluster: KubeCluster) -> str:
    return native_cluster.namespace("others-")


def test_a_hundred_containers_are_judged_within_the_limits_of_cel(
    namespace: str, native_cluster: KubeCluster
) -> None:
    body = {"metadata": {"name": "export-large"}, "handler": "h"}
    native_cluster.create("/apis/node.k8s.io/v1/runtimeclasses", body)
    pod = simple_pod("a", namespace)
    memory = {"resources": {"limits": {"memory": "64Mi"}}}
    for key, letter in (("initContainers", "c"), ("containers", "d")):
        pod["spec"][key] = [container(f"{letter}-1{n}", "/c", **memory) for n in range(50)]
    relabel = {"skipSELinuxRelabel": {"pods": "All", "runtimeClassName": "export-large"}}
    with exported(native_cluster, policy("q", remedies=relabel)):
        made = create(native_cluster, pod, dry_run=True)["spec"]
    assert made["runtimeClassName"] == "export-large"


@pytest.mark.parametrize("is_present", [False, True])
def test_policy_sets_its_class_only_if_it_exists(
    is_present: bool, namespace: str, native_cluster: KubeCluster
) -> None:
    name = f"export-class-{is_present}".lower()
    if is_present:
        body = {"metadata": {"name": name}, "handler": "h", "overhead": {"podFixed": {"cpu": "1"}}}
        native_cluster.create("/apis/node.k8s.io/v1/runtimeclasses", body)
    with exported(native_cluster, policy("q", remedies={"runtimeClass": {"name": name}})):
        spec = create(native_cluster, simple_pod("a", namespace), dry_run=True)["spec"]
    assert spec.get("runtimeClassName") == (name if is_present else None)
    # The API server merges the class into the pod after the policy has set it.
    assert spec.get("overhead") == ({"cpu": "1"} if is_present else None)


def test_audit_policy_warns_and_changes_nothing(
    namespace: str, native_cluster: KubeCluster
) -> None:
    before = create(native_cluster, simple_pod("a", namespace), dry_run=True)
    answers: list[Answer] = []

    def warns() -> bool:
        answers.append(native_cluster.create_pod(simple_pod("a", namespace), dry_run=True))
        return bool(answers[-1].warnings)

    with exported(native_cluster, policy("q", remedies=SELINUX, action="Audit")):
        await_that(warns, "the policy warns")
    (warning,) = answers[-1].warnings
    assert "SettlePolicy q, action Audit: by its remedy seLinuxChangePolicy" in warning
    assert all(normal(answer.body) == normal(before) for answer in answers)


def test_guard_warns_of_a_pod_that_left_admission_unsettled_and_of_no_other(
    namespace: str, native_cluster: KubeCluster
) -> None:
    both = policy("q", remedies={"skipSELinuxRelabel": {"pods": "All"}, **SELINUX})
    needy, settled = simple_pod("a", namespace), simple_pod("a", namespace)
    settled["metadata"]["annotations"] = dict.fromkeys(SKIP_RELABEL_ANNOTATIONS, "true")
    settled["spec"]["securityContext"] = {"seLinuxChangePolicy": "Recursive"}

    def warnings(pod: Json) -> list[str]:
        return native_cluster.create_pod(pod, dry_run=True).warnings

    with exported(native_cluster, both, guard=True):
        await_that(lambda: len(warnings(needy)) == 2, "the guard warns")
        assert all("the pod is not settled: by remedy " in each for each in warnings(needy))
        assert not warnings(settled)
        with exported(native_cluster, both):
            assert not warnings(needy)
        assert warnings(needy)


def test_printed_policies_can_be_applied_and_deleted(
    namespace: str, native_cluster: KubeCluster
) -> None:
    install_crd(native_cluster)
    native_cluster.create(POLICIES, policy_document("applied", remedies=SELINUX))
    done = podsettle(
        *("export", "applied", "--api-version", API_VERSION),
        env=environment_with(native_cluster.kubeconfig),
    )
    assert done.returncode == 0, done.stderr
    pod = simple_pod("a", namespace)
    applied = native_cluster.kubectl("apply", "-f", "-", input=done.stdout)
    assert applied.returncode == 0, applied.stderr
    await_that(lambda: is_changed(native_cluster, pod), "the printed policy is in force")
    deleted = native_cluster.kubectl("delete", "-f", "-", input=done.stdout)
    assert deleted.returncode == 0, deleted.stderr
    await_that(lambda: not is_changed(native_cluster, pod), "the printed policy is gone")
