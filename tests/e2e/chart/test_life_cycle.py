"""The chart's life cycle: installed, applied, changed and removed, by Helm or as deployers do it.

The deployers do not run here. Argo CD: server-side apply by `argocd-controller`, without the kinds
of its built-in exclusions (`util/settings/resources_filter.go`), with its label of the application
on each object, and again every few seconds (self-heal). Flux and parent charts: Helm. kustomize:
that of kubectl.
"""

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
    Replica,
    installed,
    policy,
)
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.kube.custom_resources import create_crd
from tests.support.paths import CHART, DOCS
from tests.support.pod_load import creating_pods
from tests.support.process import podsettle
from tests.support.waiting import await_that

pytestmark = pytest.mark.slow

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RELEASE}"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
SECRET = f"{OWN}/secrets/{RELEASE}-tls"
CRD = "CustomResourceDefinition settlepolicies.podsettle.dev"
EXCLUDED_BY_ARGO_CD = {"Lease", "Event", "Endpoints", "EndpointSlice"}
ROUNDS = 5
"""Of self-heal. Each takes some seconds."""


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Installation]:
    """A cluster with the namespace, and without a release."""
    with KubeCluster.start(ROUTING) as cluster, installed(cluster, tmp_path) as installation:
        cluster.namespace(NAMESPACE)
        yield installation


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
    assert fresh.left() == [CRD]
    assert cluster.request("GET", f"{POLICIES}/wide").status == 200
    fresh.shell(fresh.documented("install.md", "Uninstall", 1))
    await_that(lambda: not fresh.left(), "the CRD goes, and every policy with it")


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


def certificates_from_files(directory: Path) -> tuple[list[str], tuple[str, ...]]:
    """Return the flags of helm, and of the replica that mounts the certificates."""
    made = podsettle("certs", "--certs-dir", directory, "--name", HOST)
    assert made.returncode == 0, made.stderr
    flags = [
        "--set=certificates.source=files,certificates.files.secretName=mine",
        f"--set-file=webhook.caBundle={directory}/ca.crt",
    ]
    return flags, (f"--certs-dir={directory}",)


def test_the_certificate_source_can_be_changed_and_changed_back(
    fresh: Installation, tmp_path: Path
) -> None:
    """As the documentation says: no replicas at first, and what they owned is taken over."""
    cluster = fresh.cluster
    files, mounted = certificates_from_files(tmp_path)
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
        assert fresh.get(DEPLOYMENT)["spec"]["replicas"] == 2
        await_that(fresh.start(*mounted).is_ready, "podsettle is ready")
        await_that(lambda: is_called(cluster, namespace), "both webhooks trust it")

    change(*files, mounted=mounted)
    assert cluster.request("GET", SECRET).status == 404
    change()
    assert fresh.get(SECRET)["data"]


def rendered(*flags: str) -> list[Json]:
    done = run(
        "helm", "template", RELEASE, CHART, "-n", NAMESPACE, "--include-crds", REQUIRED, *flags
    )
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def apply_as_argo_cd(release: Installation, objects: list[Json]) -> None:
    """Apply the objects of an application. CRDs come first, as in its sync phases."""
    labelled = []
    for each in objects:
        if each["kind"] not in EXCLUDED_BY_ARGO_CD:
            labels = each["metadata"].get("labels", {}) | {"app.kubernetes.io/instance": "shop"}
            labelled.append({**each, "metadata": {**each["metadata"], "labels": labels}})
    definitions = [each for each in labelled if each["kind"] == "CustomResourceDefinition"]
    for part in (definitions, [each for each in labelled if each not in definitions]):
        applied = release.cluster.kubectl(
            "apply", "--server-side", "--force-conflicts", "--field-manager=argocd-controller",
            "-f", "-", input=yaml.safe_dump_all(part),
        )  # fmt: skip
        assert applied.returncode == 0, applied.stderr


@pytest.mark.parametrize("source", ["selfManaged", "files"])
def test_argo_cd_installs_podsettle_and_heals_without_a_fight(
    fresh: Installation, tmp_path: Path, source: str
) -> None:
    flags, mounted = certificates_from_files(tmp_path) if source == "files" else ([], ())
    objects = rendered(*flags)
    apply_as_argo_cd(fresh, objects)
    fresh.start_ready(*mounted)
    cluster = fresh.cluster
    cluster.create(POLICIES, policy("wide", namespaceSelector={}))
    namespace = cluster.namespace("argo-")
    await_that(lambda: is_called(cluster, namespace), "every namespace is covered")
    deployment = fresh.get(DEPLOYMENT)["metadata"]["uid"]
    assert fresh.get(LEASE)["metadata"]["ownerReferences"][0]["uid"] == deployment
    await_that(lambda: fresh.get(f"{POLICIES}/wide").get("status"), "the status is written")

    def written() -> list[Json]:
        configs = {name: each["clientConfig"] for name, each in fresh.webhooks().items()}
        return [configs, cluster.request("GET", SECRET).body.get("data", {})]

    before = written()
    assert before[0].keys() == {OPT_IN, BY_SELECTOR}
    for _ in range(ROUNDS):
        apply_as_argo_cd(fresh, objects)
        assert written() == before
        assert is_called(cluster, namespace)
    # Deployers apply hooks as any other object, so there must be no pod for `helm test`.
    assert fresh.get(f"{OWN}/pods")["items"] == []
    # By hand, by Velero, or by a tool that prunes.
    old = fresh.get(LEASE)["metadata"]["uid"]
    cluster.request("DELETE", LEASE)

    def is_back() -> bool:
        found = cluster.request("GET", LEASE)
        return found.status == 200 and found.body["metadata"]["uid"] != old

    await_that(is_back, "the Lease is back", seconds=10)
    removed = [each for each in objects if each["kind"] != "CustomResourceDefinition"]
    deleted = cluster.kubectl("delete", "-f", "-", input=yaml.safe_dump_all(removed))
    assert deleted.returncode == 0, deleted.stderr
    assert fresh.left() == [CRD]


def test_replica_without_the_right_to_a_lease_never_gets_ready(
    fresh: Installation, tmp_path: Path
) -> None:
    """With certificates from files, it would serve, and register no webhook of a policy."""
    flags, mounted = certificates_from_files(tmp_path)
    objects = rendered(*flags)
    for each in objects:
        if each["kind"] == "Role":
            each["rules"] = [rule for rule in each["rules"] if "leases" not in rule["resources"]]
    apply_as_argo_cd(fresh, objects)
    replica = fresh.start(*mounted)
    await_that(lambda: "cannot get resource" in readiness(replica), "the Lease is the reason")
    assert not replica.is_ready()


def readiness(replica: Replica) -> str:
    """Return what the replica says of its Lease."""
    answer = replica.ask("/readyz?verbose")
    checks = answer.json()["checks"] if answer is not None else []
    return next((each["note"] for each in checks if each["name"] == "lease"), "")


def test_kubectl_prune_keeps_the_lease(fresh: Installation) -> None:
    objects = yaml.safe_dump_all(rendered())
    cluster = fresh.cluster
    # With a selector, kubectl applies only objects that have the label.
    cluster.kubectl("apply", "--server-side", "-f", CHART / "crds")

    def apply() -> None:
        selector = f"app.kubernetes.io/instance={RELEASE}"
        flags = ("--prune", "--selector", selector, "--namespace", NAMESPACE)
        applied = cluster.kubectl("apply", *flags, "-f", "-", input=objects)
        assert applied.returncode == 0, applied.stderr

    apply()
    fresh.start_ready()
    uid = fresh.get(LEASE)["metadata"]["uid"]
    apply()
    assert fresh.get(LEASE)["metadata"]["uid"] == uid


def test_kustomize_moves_the_release_to_another_namespace(
    fresh: Installation, tmp_path: Path
) -> None:
    (tmp_path / "podsettle.yaml").write_text(yaml.safe_dump_all(rendered()))
    page = (DOCS / "install.md").read_text()
    text = page[page.index("# kustomization.yaml") :].partition("```")[0]
    kustomization = yaml.safe_load(text)
    assert kustomization["namespace"] != NAMESPACE
    (tmp_path / "kustomization.yaml").write_text(text)
    done = fresh.cluster.kubectl("kustomize", tmp_path)
    assert done.returncode == 0, done.stderr
    made = [each for each in yaml.safe_load_all(done.stdout) if each]
    moved = kustomization["namespace"]
    assert {each["metadata"].get("namespace", moved) for each in made} == {moved}
    (configuration,) = (each for each in made if each["kind"] == "MutatingWebhookConfiguration")
    (webhook,) = configuration["webhooks"]
    assert webhook["clientConfig"]["service"]["namespace"] == moved
    excluded = webhook["namespaceSelector"]["matchExpressions"][-1]["values"]
    assert moved in excluded
    assert NAMESPACE not in excluded
    (deployment,) = (each for each in made if each["kind"] == "Deployment")
    assert NAMESPACE not in yaml.safe_dump(deployment["spec"])
