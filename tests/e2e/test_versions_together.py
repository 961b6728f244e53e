"""Replicas of an older version and of this one behind one Service, under load, there and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.support.checkout import checked_out
from tests.support.e2e_pods import is_called, normal, simple_pod, wrappers
from tests.support.helm_release import (
    BY_SELECTOR,
    CONFIGURATION,
    FAIL,
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
from tests.support.kube.cluster import KubeCluster
from tests.support.paths import CHART
from tests.support.pod_load import Load, creating_pods
from tests.support.waiting import await_that

pytestmark = pytest.mark.slow

OLD = "39d233fc82d43c443b0b133fe384ff4bf166ac1c"
"""It registers one webhook for all policies, and does not know how old the CRD is."""
PER_SECOND = 25


@pytest.fixture
def old() -> Iterator[Path]:
    """The sources and the chart of an older version, with a CRD that is older still."""
    with checked_out(OLD) as tree:
        (path,) = (tree / "charts/podsettle/crds").iterdir()
        crd = yaml.safe_load(path.read_text())
        (version,) = crd["spec"]["versions"]
        del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["description"]
        path.write_text(yaml.safe_dump(crd))
        yield tree


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Installation]:
    with KubeCluster.start(ROUTING) as cluster, installed(cluster, tmp_path) as installation:
        yield installation


OLD_LAYOUT = {OPT_IN, BY_SELECTOR}
NEW_LAYOUT = {OPT_IN, BY_SELECTOR, f"b.{BY_SELECTOR}"}


def reviews(replica: Replica) -> int:
    """Return the number of reviews of covered pods that a replica has answered."""
    return replica.log.read_text().count(" pod load-")


@contextmanager
def every_connection_used(release: Installation, namespace: str) -> Iterator[None]:
    """As many pods at once, while the block runs, as use the API server's idle connections and open
    further ones, each to a replica by chance.

    A connection that ends in the moment in which it is used again costs a pod (docs/http.md,
    "Shutdown"). It is one that was idle: here none is.
    """
    with creating_pods(release.cluster, simple_pod("burst", namespace), per_second=1000) as load:
        await_that(lambda: load.created > 40, "pods are created")
        yield


def await_reviews(release: Installation, namespace: str, *replicas: Replica) -> None:
    """Wait until each has answered some more."""
    before = {replica: reviews(replica) for replica in replicas}
    with every_connection_used(release, namespace):
        for replica in replicas:
            await_that(lambda r=replica: reviews(r) > before[r] + 5, f"{replica.log} is asked")  # type: ignore[misc]


def retire(release: Installation, namespace: str, replica: Replica) -> None:
    """Take a replica away. Each answer that it gives ends a connection."""
    with every_connection_used(release, namespace):
        release.retire(replica)


def generation(release: Installation) -> int:
    """Return the number of changes of the webhook configuration so far."""
    found: int = release.get(CONFIGURATION)["metadata"]["generation"]
    return found


def check_no_fight(release: Installation, load: Load, since: int) -> None:
    """While both versions run one of them writes, and no more than its webhooks take."""
    created = load.created
    await_that(lambda: load.created > created + 3 * PER_SECOND, "pods are created")
    # A version that takes the Lease over applies its webhooks, then deletes what is not among them.
    assert generation(release) - since <= 2


def settles(release: Installation, load: Load, layout: set[str]) -> None:
    """The webhooks become as one version makes them, and stay so while pods are created."""
    await_that(lambda: set(release.webhooks()) == layout, f"the webhooks are {layout}")
    before = generation(release)
    created = load.created
    await_that(lambda: load.created > created + 3 * PER_SECOND, "pods are created")
    assert generation(release) == before


def check_fixed_point(release: Installation, *namespaces: str) -> None:
    """Whichever versions were asked: once wrapped, and left as it is by whichever is asked next."""
    cluster = release.cluster
    for namespace in namespaces:
        outcomes = []
        for command in (["/prepare", "x"], ["sh", "-c", "x"]):
            for _ in range(5):
                pod = simple_pod("pod", namespace, command=command)
                status, body, _ = cluster.create_pod(pod, dry_run=True)
                assert status == 201, body
                assert wrappers(body["spec"]["initContainers"][-1]) == 1
                outcomes.append(body)
        for settled in outcomes:
            metadata = {"annotations": settled["metadata"]["annotations"]}
            again = {
                **settled,
                "metadata": {**metadata, "name": "pod", "namespace": namespace},
            }
            status, body, _ = cluster.create_pod(again, dry_run=True)
            assert status == 201, body
            assert normal(body) == normal(settled)


def says_of_the_crd(release: Installation, replica: Replica) -> tuple[bool, str]:
    """Whether a replica notes an old CRD, and what a policy's status says."""
    checks = replica.request("GET", "/readyz?verbose").json()["checks"]
    noted = any(each["note"] for each in checks if each["name"] == "crd")
    conditions = release.get(f"{POLICIES}/a").get("status", {}).get("conditions", ())
    return noted, next((c["status"] for c in conditions if c["type"] == "CRDCurrent"), "")


def test_two_versions_side_by_side_lose_no_pod_and_patch_pods_equally(
    release: Installation, old: Path
) -> None:
    """With the older CRD at first. tests/e2e/test_helm_upgrade.py upgrades the CRD before."""
    cluster = release.cluster
    release.install(*FAIL, chart=old / "charts/podsettle")
    first, second = release.start_ready(sources=old), release.start_ready(sources=old)
    for name, spec in (
        ("a", {"namespaceSelector": {"matchLabels": {"team": "a"}}}),
        ("b", {"namespaceSelector": {"matchLabels": {"team": "b"}}}),
        ("opt-in", {}),
    ):
        cluster.create(POLICIES, policy(name, **spec))
    chosen = cluster.namespace("load-", labels={"podsettle.dev/policy": "opt-in"})
    selected = cluster.namespace("load-", labels={"team": "b"})
    for namespace in (chosen, selected):
        await_that(lambda n=namespace: is_called(cluster, n), "the namespace is covered")  # type: ignore[misc]

    with (
        creating_pods(cluster, simple_pod("a", chosen), per_second=PER_SECOND) as by_label,
        creating_pods(cluster, simple_pod("b", selected), per_second=PER_SECOND) as by_policy,
    ):
        settles(release, by_policy, OLD_LAYOUT)

        # There: the older one writes as long as it holds the Lease.
        release.helm("upgrade", RELEASE, CHART, REQUIRED, *FAIL)
        before = generation(release)
        third = release.start_ready()
        retire(release, chosen, first)
        await_reviews(release, chosen, second, third)
        await_that(lambda: is_called(cluster, selected), "pods are settled")
        check_fixed_point(release, chosen, selected)
        check_no_fight(release, by_policy, before)
        fourth = release.start_ready()
        retire(release, chosen, second)
        settles(release, by_policy, NEW_LAYOUT)
        await_that(
            lambda: says_of_the_crd(release, third) == (True, "False"), "it tells that it is old"
        )
        release.shell(release.documented("install.md", "Upgrade"))
        await_that(lambda: says_of_the_crd(release, third) == (False, "True"), "it is new")

        # And back: now this version writes as long as it holds the Lease.
        release.helm("rollback", RELEASE, "1")
        before = generation(release)
        fifth = release.start_ready(sources=old)
        retire(release, chosen, third)
        await_reviews(release, chosen, fourth, fifth)
        check_fixed_point(release, chosen, selected)
        check_no_fight(release, by_policy, before)
        retire(release, chosen, fourth)
        settles(release, by_policy, OLD_LAYOUT)

    for load in (by_label, by_policy):
        print(load)
        assert not load.failed, "\n".join(load.failed)
        assert not load.unsettled, "\n".join(load.unsettled)
        assert load.created > 10 * PER_SECOND
