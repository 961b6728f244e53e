"""The chart as deployers apply it, from nothing to a settled pod. The deployers do not run here.

Argo CD: server-side apply by `argocd-controller`, without the kinds of its built-in exclusions
(`util/settings/resources_filter.go`), with its label of the application on each object, and again
every few seconds (self-heal). Flux and parent charts: Helm. kustomize: that of kubectl.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.e2e_pods import is_called
from tests.support.helm import NAMESPACE, run
from tests.support.helm_release import (
    BY_SELECTOR,
    HOST,
    OPT_IN,
    POLICIES,
    RELEASE,
    REQUIRED,
    ROUTING,
    Installation,
    Replica,
    installed,
    policy,
)
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.paths import CHART, DOCS
from tests.support.process import podsettle
from tests.support.waiting import await_that

pytestmark = pytest.mark.slow

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RELEASE}"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
EXCLUDED_BY_ARGO_CD = {"Lease", "Event", "Endpoints", "EndpointSlice"}
ROUNDS = 5
"""Of self-heal. Each takes some seconds."""


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Installation]:
    """A cluster with the namespace, and without a release."""
    with KubeCluster.start(ROUTING) as cluster, installed(cluster, tmp_path) as installation:
        cluster.namespace(NAMESPACE)
        yield installation


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


def certificates_from_files(directory: Path) -> tuple[list[str], tuple[str, ...]]:
    """Return the flags of helm, and of the replica that mounts the certificates."""
    made = podsettle("certs", "--certs-dir", directory, "--name", HOST)
    assert made.returncode == 0, made.stderr
    flags = [
        "--set=certificates.source=files,certificates.files.secretName=mine",
        f"--set-file=webhook.caBundle={directory}/ca.crt",
    ]
    return flags, (f"--certs-dir={directory}",)


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

    before = {name: each["clientConfig"] for name, each in fresh.webhooks().items()}
    assert before.keys() == {OPT_IN, BY_SELECTOR}
    for _ in range(ROUNDS):
        apply_as_argo_cd(fresh, objects)
        assert {name: each["clientConfig"] for name, each in fresh.webhooks().items()} == before
        assert is_called(cluster, namespace)
    # By hand, by Velero, or by a tool that prunes.
    old = fresh.get(LEASE)["metadata"]["uid"]
    cluster.request("DELETE", LEASE)

    def is_back() -> bool:
        found = cluster.request("GET", LEASE)
        return found.status == 200 and found.body["metadata"]["uid"] != old

    await_that(is_back, "the Lease is back", seconds=10)


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


def parent_chart(directory: Path) -> Path:
    """A chart with podsettle as a dependency that can be switched off."""
    parent = directory / "parent"
    parent.mkdir()
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    dependency = {
        "name": "podsettle",
        "version": version,
        "repository": f"file://{CHART}",
        "condition": "podsettle.enabled",
    }
    chart = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [dependency]}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(chart))
    images = {"image": {"repository": "podsettle"}, "lingerImage": "linger"}
    registry = {"imageRegistry": "registry.example", "imagePullSecrets": ["one"], "domain": "x"}
    (parent / "values.yaml").write_text(yaml.safe_dump({"podsettle": images, "global": registry}))
    built = run("helm", "dependency", "build", parent)
    assert built.returncode == 0, built.stderr
    return parent


@pytest.mark.parametrize(("enabled", "kinds"), [("true", True), ("false", False), ("null", True)])
def test_parent_chart_can_switch_podsettle_off(tmp_path: Path, enabled: str, kinds: bool) -> None:
    parent = parent_chart(tmp_path)
    done = run("helm", "template", "shop", parent, f"--set=podsettle.enabled={enabled}")
    assert done.returncode == 0, done.stderr
    made = [each for each in yaml.safe_load_all(done.stdout) if each]
    assert bool(made) is kinds
    for pod in (each["spec"]["template"]["spec"] for each in made if each["kind"] == "Deployment"):
        assert pod["imagePullSecrets"] == [{"name": "one"}]
        assert pod["containers"][0]["image"].startswith("registry.example/podsettle:")


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
