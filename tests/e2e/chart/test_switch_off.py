"""The commands of docs/operations.md that switch podsettle off, and bring it back.

podsettle's account may create webhook configurations here, so no missing right keeps it away.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.e2e_pods import is_called, normal, simple_pod
from tests.support.helm import NAMESPACE
from tests.support.helm_release import (
    BY_SELECTOR,
    CONFIGURATION,
    OPT_IN,
    POLICIES,
    RELEASE,
    Installation,
    Replica,
    policy,
    released,
)
from tests.support.kube.cluster import Json
from tests.support.service_accounts import grant
from tests.support.waiting import await_that

pytestmark = pytest.mark.slow

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RELEASE}"
IS_LEADER = "is held by this replica"
OFF, CHECK, RESTORE, HELM, MANAGED = range(5)
"""The scripts of the section, in their order."""
BACK_UP = "podsettle-webhooks.yaml"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A release with two replicas, a policy for all namespaces, and one to opt in to."""
    directory = tmp_path_factory.mktemp("release")
    with released(directory, "--set=drain.quiet=1s", replicas=2) as installation:
        cluster = installation.cluster
        rule = {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["mutatingwebhookconfigurations"],
            "verbs": ["create"],
        }
        grant(cluster, f"{NAMESPACE}:{RELEASE}", [rule])
        cluster.create(POLICIES, policy("opt-in"))
        cluster.create(POLICIES, policy("wide", namespaceSelector={}))
        cluster.namespace("ci", labels={"podsettle.dev/policy": "opt-in"})
        cluster.namespace("other")
        yield installation


def documented(release: Installation, number: int) -> str:
    return release.documented("operations.md", "Switch it off", number)


@pytest.fixture
def on(release: Installation) -> Installation:
    """The release while the API server calls podsettle for both namespaces."""
    while len(release.replicas) < 2:
        release.start_ready()
    if release.cluster.request("GET", CONFIGURATION).status == 404:
        release.shell(documented(release, HELM))
    await_that(lambda: is_called(release.cluster, "ci"), "podsettle is called for one namespace")
    await_that(lambda: is_called(release.cluster, "other"), "podsettle is called for the other")
    return release


def switch_off(release: Installation, directory: Path) -> None:
    release.shell(f"cd {directory}\n{documented(release, OFF)}")
    assert release.shell(documented(release, CHECK)) == ""
    await_that(lambda: not is_called(release.cluster, "ci"), "podsettle is off")


def restore(release: Installation, directory: Path) -> None:
    release.shell(f"cd {directory}\n{documented(release, RESTORE)}")


def fails(command: str) -> str:
    """Return a script that succeeds if a command fails."""
    return f"if {{ {command} }}; then exit 9; fi"


def webhook_fields(release: Installation) -> list[Json]:
    """Return all that the configuration says about the webhooks, their CA bundles included."""
    webhooks: list[Json] = release.get(CONFIGURATION)["webhooks"]
    return webhooks


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "not-running"])
def test_back_up_restores_the_webhooks_and_a_second_restore_changes_nothing(
    on: Installation, tmp_path: Path, is_running: bool
) -> None:
    release, cluster = on, on.cluster
    before = webhook_fields(release)
    settled = cluster.create_pod(simple_pod("a", "ci"), dry_run=True).body
    assert {each["name"] for each in before} == {OPT_IN, BY_SELECTOR}
    assert all(each["clientConfig"]["caBundle"] for each in before)
    assert "podsettle.dev/applied" in settled["metadata"]["annotations"]
    if not is_running:
        release.stop_all(signal.SIGKILL)
    switch_off(release, tmp_path)
    pod = cluster.create_pod(simple_pod("off", "ci"), dry_run=True)
    assert (pod.status, pod.warnings) == (201, [])
    assert not pod.body["metadata"].get("annotations")

    restore(release, tmp_path)
    restored = release.get(CONFIGURATION)
    assert restored["webhooks"] == before
    release.shell(f"cd {tmp_path}\n{fails(documented(release, RESTORE))}")
    assert webhook_fields(release) == before
    if not is_running:
        same = release.get(CONFIGURATION)["metadata"]
        assert same["resourceVersion"] == restored["metadata"]["resourceVersion"]
        release.start_ready()

    def is_settled_as_before() -> bool:
        after = cluster.create_pod(simple_pod("a", "ci"), dry_run=True).body
        return normal(after) == normal(settled)

    await_that(is_settled_as_before, "podsettle is on again, with the same policy")
    assert webhook_fields(release) == before
    # The owner of the fields is now kubectl, and Helm still writes the release.
    release.shell(documented(release, HELM))
    await_that(lambda: webhook_fields(release) == before, "the release is as it was")


def test_second_use_keeps_the_first_back_up_and_deletes_nothing(
    on: Installation, tmp_path: Path
) -> None:
    release = on
    off = f"cd {tmp_path}\n{documented(release, OFF)}"
    release.shell(off)
    back_up = (tmp_path / BACK_UP).read_text()
    assert f"name: {OPT_IN}" in back_up
    release.shell(f"cd {tmp_path}\n{fails(documented(release, OFF))}")
    assert (tmp_path / BACK_UP).read_text() == back_up
    restore(release, tmp_path)
    release.shell(f"cd {tmp_path}\n{fails(documented(release, OFF))}")
    assert (tmp_path / BACK_UP).read_text() == back_up
    assert release.cluster.request("GET", CONFIGURATION).status == 200, "it is not deleted"


def test_switched_off_podsettle_stays_away_from_a_new_leader_until_the_back_up_is_restored(
    on: Installation, tmp_path: Path
) -> None:
    release, cluster = on, on.cluster
    switch_off(release, tmp_path)
    # Each of these made the leader write the configuration while it existed.
    cluster.namespace("ci", labels={"podsettle.dev/policy": "wide"})
    first = leader(release)
    release.replicas.remove(first)
    release.withdraw(first)
    first.end(signal.SIGKILL)
    (second,) = release.replicas
    await_that(lambda: IS_LEADER in second.log.read_text(), "the other replica leads")
    for number in range(2):
        renewed = release.get(LEASE)["spec"]["renewTime"]
        await_that(
            lambda old=renewed: release.get(LEASE)["spec"]["renewTime"] != old,  # type: ignore[misc]
            f"the new leader renews the Lease again ({number})",
        )
    selector = {"matchLabels": {"later": "true"}}
    cluster.create(POLICIES, policy("later", namespaceSelector=selector))
    await_that(
        lambda: release.get(f"{POLICIES}/later").get("status", {}).get("conditions"),
        "the new leader writes to the cluster",
    )
    assert release.shell(documented(release, CHECK)) == ""
    cluster.namespace("ci", labels={"podsettle.dev/policy": "opt-in"})
    cluster.request("DELETE", f"{POLICIES}/later")


def test_running_podsettle_corrects_a_restored_webhook_of_a_deleted_policy(
    on: Installation, tmp_path: Path
) -> None:
    release, cluster = on, on.cluster
    assert BY_SELECTOR in release.webhooks()
    switch_off(release, tmp_path)
    assert cluster.request("DELETE", f"{POLICIES}/wide").status == 200
    restore(release, tmp_path)
    await_that(lambda: set(release.webhooks()) == {OPT_IN}, "the stale webhook is removed")
    await_that(lambda: is_called(cluster, "ci"), "podsettle is called")
    cluster.create(POLICIES, policy("wide", namespaceSelector={}))


def test_configuration_shows_the_marks_of_the_tool_that_manages_it(on: Installation) -> None:
    cluster, marks = on.cluster, {"kustomize.toolkit.fluxcd.io/name": "infra"}
    tracking = {"argocd.argoproj.io/tracking-id": "settle:a/B:ns/podsettle"}
    metadata = {"labels": marks, "annotations": tracking}
    cluster.request("PATCH", CONFIGURATION, {"metadata": metadata})
    shown = on.shell(documented(on, MANAGED))
    for key, value in (marks | tracking).items():
        assert f'"{key}":"{value}"' in shown
    gone = {kind: dict.fromkeys(entries) for kind, entries in metadata.items()}
    cluster.request("PATCH", CONFIGURATION, {"metadata": gone})


def leader(release: Installation) -> Replica:
    """Return the replica that holds the Lease. After both were killed, it has to expire first."""

    def found() -> list[Replica]:
        return [each for each in release.replicas if IS_LEADER in each.log.read_text()]

    await_that(found, "a replica leads")
    (first,) = found()
    return first
