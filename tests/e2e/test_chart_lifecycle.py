"""Tests of the life cycle of the chart: installation, upgrade and removal, by Helm or GitOps."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.e2e_pods import is_called, simple_pod
from tests.support.helm import CRDS, NAMESPACE, VALUES, run
from tests.support.helm_release import (
    BY_SELECTOR,
    CONFIGURATION,
    FAIL,
    HOST,
    OPT_IN,
    OWN,
    POLICIES,
    QUIET,
    RELEASE,
    REQUIRED,
    ROUTING,
    Installation,
    installed,
    policy,
)
from tests.support.kube.cluster import KubeCluster
from tests.support.kube.custom_resources import DEFINITIONS, await_crd, create_crd
from tests.support.paths import CHART
from tests.support.pod_load import creating_pods
from tests.support.process import podsettle
from tests.support.waiting import await_that
from webhook.core.policy.crd import CRD_NAME

pytestmark = pytest.mark.slow

CRD = f"{DEFINITIONS}/{CRD_NAME}"


@pytest.fixture(scope="module")
def own() -> Iterator[KubeCluster]:
    with KubeCluster.start(ROUTING) as cluster:
        yield cluster


@pytest.fixture
def fresh(own: KubeCluster, tmp_path: Path) -> Iterator[Installation]:
    """A cluster without a release. Fails the test if objects remain afterwards."""
    with installed(own, tmp_path) as installation:
        yield installation
    own.request("DELETE", CRD)
    await_that(lambda: own.request("GET", POLICIES).status == 404, "the CRD is gone")


def test_uninstalling_under_load_refuses_no_pod(fresh: Installation) -> None:
    """With failurePolicy Fail; the replicas are told to end as soon as Helm has done its part."""
    cluster = fresh.cluster
    fresh.install(*FAIL)
    fresh.start_ready()
    cluster.create(POLICIES, policy("opt-in"))
    namespace = cluster.namespace("load-", labels={"podsettle.dev/policy": "opt-in"})
    await_that(lambda: is_called(cluster, namespace), "the namespace is covered")
    with creating_pods(cluster, simple_pod("pod", namespace), per_second=50) as load:
        await_that(lambda: load.created > 25, "pods are created")
        fresh.shell(fresh.documented("install.md", "Uninstall"))
        fresh.stop_all(signal.SIGTERM)
        before = load.created
        await_that(lambda: load.created > before + 25, "pods are created without podsettle")
    assert load.failed == []
    assert len(load.unsettled) < load.created, "podsettle was asked at first"
    assert len(load.unsettled) > 25


def test_uninstalling_leaves_no_webhook_that_blocks_pods(fresh: Installation) -> None:
    """The worst case is failurePolicy Fail without a replica."""
    cluster = fresh.cluster
    fresh.install(*FAIL)
    fresh.start_ready()
    cluster.create(POLICIES, policy("wide", namespaceSelector={}))
    await_that(lambda: BY_SELECTOR in fresh.webhooks(), "every namespace is covered")
    namespace = cluster.namespace("uninstall-")
    fresh.stop_all(signal.SIGKILL)

    def create() -> int:
        return cluster.create_pod(simple_pod("pod", namespace), dry_run=True).status

    await_that(lambda: create() == 500, "pods are refused")
    fresh.shell(fresh.documented("install.md", "Uninstall"))
    await_that(lambda: create() == 201, "pods are created")
    assert fresh.left() == ["CustomResourceDefinition settlepolicies.podsettle.dev"]
    assert cluster.request("GET", f"{POLICIES}/wide").status == 200
    fresh.shell(fresh.documented("install.md", "Uninstall", 1))
    await_that(lambda: not fresh.left(), "the CRD goes, and every policy with it")


def test_repeated_server_side_apply_changes_nothing(fresh: Installation, tmp_path: Path) -> None:
    """Without Helm in the cluster: rendered, and applied by a manager of its own.

    Hooks are applied as any other object is, so there must be no pod for `helm test` among them.
    """
    cluster = fresh.cluster
    cluster.namespace(NAMESPACE)
    manifests = tmp_path / "podsettle.yaml"
    done = run("helm", "template", RELEASE, CHART, "-n", NAMESPACE, REQUIRED)
    manifests.write_text(done.stdout)

    def apply(what: Path) -> None:
        flags = ("--server-side", "--field-manager=gitops")
        applied = cluster.kubectl("apply", *flags, "-f", what)
        assert (applied.returncode, applied.stderr) == (0, "")

    apply(CHART / "crds")
    await_crd(cluster, CRD_NAME)
    apply(manifests)
    await_that(fresh.start().is_ready, "podsettle is ready")
    cluster.create(POLICIES, policy("wide", namespaceSelector={}))
    namespace = cluster.namespace("gitops-")
    await_that(lambda: is_called(cluster, namespace), "every namespace is covered")
    assert fresh.get(f"{OWN}/pods")["items"] == []
    before = fresh.written_by_podsettle()
    assert before.keys() >= {OPT_IN, BY_SELECTOR}
    assert all(before.values())
    apply(manifests)
    assert fresh.written_by_podsettle() == before

    deleted = cluster.kubectl("delete", "-f", manifests)
    assert deleted.returncode == 0, deleted.stderr
    assert fresh.left() == ["CustomResourceDefinition settlepolicies.podsettle.dev"]


def test_the_certificate_source_can_be_changed_and_changed_back(
    fresh: Installation, tmp_path: Path
) -> None:
    """As the documentation says: no replicas at first, and what they owned is taken over."""
    cluster = fresh.cluster
    made = podsettle("certs", "--certs-dir", tmp_path, "--name", HOST)
    assert made.returncode == 0, made.stderr
    files = (
        "--set=certificates.source=files,certificates.files.secretName=mine",
        f"--set-file=webhook.caBundle={tmp_path}/ca.crt",
    )
    fresh.install(QUIET)
    fresh.start_ready()  # with certificates of its own
    cluster.create(POLICIES, policy("wide", namespaceSelector={}))
    namespace = cluster.namespace("source-")
    await_that(lambda: is_called(cluster, namespace), "every namespace is covered")

    def change(*flags: str, mounted: tuple[str, ...] = ()) -> None:
        fresh.stop_all(signal.SIGTERM)
        deployment = f"deployment/{RELEASE}"
        scaled = cluster.kubectl("-n", NAMESPACE, "scale", deployment, "--replicas=0")
        assert scaled.returncode == 0, scaled.stderr
        fresh.helm("upgrade", RELEASE, CHART, REQUIRED, QUIET, "--force-conflicts", *flags)
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
        assert fresh.get(path)["spec"]["replicas"] == 2
        await_that(fresh.start(*mounted).is_ready, "podsettle is ready")
        await_that(lambda: is_called(cluster, namespace), "both webhooks trust it")

    change(*files, mounted=(f"--certs-dir={tmp_path}",))
    assert cluster.request("GET", f"{OWN}/secrets/{RELEASE}-tls").status == 404
    change()
    assert fresh.get(f"{OWN}/secrets/{RELEASE}-tls")["data"]


def test_release_with_every_value_set_installs_and_uninstalls(fresh: Installation) -> None:
    """With the CRDs of cert-manager and of the Prometheus operator there."""
    cluster = fresh.cluster
    for path in CRDS.values():
        create_crd(cluster, yaml.safe_load(path.read_text()))
    values = ("--values", VALUES["everything"])
    said = yaml.safe_load(VALUES["everything"].read_text())["imageConfig"]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    bindings = [f"{rbac}/namespaces/{name}/rolebindings" for name in said["pullSecretNamespaces"]]
    for name in said["pullSecretNamespaces"]:
        cluster.namespace(name)
    fresh.helm("install", "everything", CHART, *values, "--create-namespace")
    policies = {each["metadata"]["name"] for each in fresh.get(POLICIES)["items"]}
    assert policies == {"quick-init", "volatile"}
    fresh.helm("upgrade", "everything", CHART, *values)
    assert all(fresh.get(path)["items"] for path in bindings)
    fresh.helm("uninstall", "everything")
    assert not any(fresh.get(path)["items"] for path in bindings)
    assert fresh.get(POLICIES)["items"] == []
    assert cluster.request("GET", CONFIGURATION.replace(RELEASE, "settle")).status == 404
    # The RuntimeClass stays: a running pod needs it for a new sandbox.
    assert fresh.get("/apis/node.k8s.io/v1/runtimeclasses/overlay-volatile")
