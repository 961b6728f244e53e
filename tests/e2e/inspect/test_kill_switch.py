"""The kill switch on a real API server: podsettle stays away, and comes back when it is told to.

podsettle's account may create webhook configurations here, so no missing right keeps it away.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.support.e2e_pods import is_called, normal, simple_pod
from tests.support.helm import NAMESPACE
from tests.support.helm_release import (
    CONFIGURATION,
    OPT_IN,
    POLICIES,
    RELEASE,
    Installation,
    Replica,
    policy,
    released,
)
from tests.support.kube.cluster import KubeCluster
from tests.support.process import PODSETTLE
from tests.support.waiting import TIMEOUT_SECONDS, await_that

pytestmark = pytest.mark.slow

Json: TypeAlias = dict[str, Any]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RELEASE}"
CONFIGURATIONS = "mutatingwebhookconfigurations"
ELSEWHERE = "export KUBECONFIG=/dev/null\n"
"""Another cluster than the one that --kubeconfig chose."""
IS_LEADER = "is held by this replica"


def commands_in(comments: str) -> str:
    """Return the commands in comments: they are indented."""
    prefix = "#   "
    lines = (line for line in comments.splitlines() if line.startswith(prefix))
    return "\n".join(line.removeprefix(prefix) for line in lines)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    directory = tmp_path_factory.mktemp("release")
    with released(directory, "--set=drain.quiet=1s", replicas=2) as installation:
        cluster = installation.cluster
        grant(cluster, "creator", ["create"], RELEASE, NAMESPACE)
        cluster.create(POLICIES, policy("opt-in"))
        cluster.namespace("ci", labels={"podsettle.dev/policy": "opt-in"})
        await_that(lambda: is_called(cluster, "ci"), "the namespace is covered")
        yield installation


def grant(cluster: KubeCluster, name: str, verbs: list[str], account: str, namespace: str) -> None:
    """Grant an account verbs on webhook configurations."""
    rule = {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": [CONFIGURATIONS],
        "verbs": verbs,
    }
    cluster.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    cluster.create(
        f"{RBAC}/clusterrolebindings",
        {
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": name,
            },
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        },
    )


def kill_switch(kubeconfig: Path, directory: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a directory, into which it may write a record."""
    return subprocess.run(
        [PODSETTLE, "doctor", "--kill-switch", "--kubeconfig", str(kubeconfig), *flags],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def exists(release: Installation) -> bool:
    return release.cluster.request("GET", CONFIGURATION).status == 200


def leader(release: Installation) -> Replica:
    """The replica that said last that it holds the Lease."""
    (found,) = (each for each in release.replicas if IS_LEADER in each.log.read_text())
    return found


def test_switched_off_podsettle_stays_away_from_a_new_leader_until_the_record_is_created(
    release: Installation, tmp_path: Path
) -> None:
    cluster = release.cluster
    before = cluster.create_pod(simple_pod("before", "ci"), dry_run=True).body
    assert "podsettle.dev/applied" in before["metadata"]["annotations"]
    done = kill_switch(cluster.kubeconfig, tmp_path, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "was not created again" in done.stdout
    assert not exists(release)

    # Each of these made the leader write the configuration while it existed.
    cluster.create(POLICIES, policy("wide", namespaceSelector={}))
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
    cluster.create(POLICIES, policy("later", namespaceSelector={}))
    await_that(
        lambda: release.get(f"{POLICIES}/later").get("status", {}).get("conditions"),
        "the new leader writes to the cluster",
    )
    assert not exists(release)
    pod = cluster.create_pod(simple_pod("off", "ci"))
    assert (pod.status, pod.warnings) == (201, [])
    assert not pod.body["metadata"].get("annotations")
    assert [each["name"] for each in pod.body["spec"]["initContainers"]] == ["prepare"]

    (record,) = tmp_path.iterdir()
    assert done.stdout.splitlines()[-1] == (
        f"kubectl --kubeconfig={cluster.kubeconfig} create -f {record}"
    )
    release.shell(done.stdout.splitlines()[-1])
    for name in ("wide", "later"):
        cluster.request("DELETE", f"{POLICIES}/{name}")
    cluster.namespace("ci", labels={"podsettle.dev/policy": "opt-in"})

    def is_settled_as_before() -> bool:
        # The replicas may see the end of the other policies after the API server calls them.
        after = cluster.create_pod(simple_pod("after", "ci"), dry_run=True).body
        return normal(after) == normal(before)

    await_that(is_settled_as_before, "podsettle is on again, with the same policy")


def test_printed_commands_switch_podsettle_off_and_on_again(
    release: Installation, tmp_path: Path
) -> None:
    cluster = release.cluster
    await_that(lambda: is_called(cluster, "ci"), "podsettle is on")
    done = kill_switch(cluster.kubeconfig, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
    assert exists(release), "without --yes nothing happens"
    _, _, back = done.stdout.partition("# The way back:\n")
    with_helm, _, without_helm = back.partition("# The way back without Helm")
    assert release.shell(f"cd {tmp_path}\n{ELSEWHERE}{done.stdout}").splitlines() == [
        f'mutatingwebhookconfiguration.admissionregistration.k8s.io "{RELEASE}" deleted'
    ]
    await_that(lambda: not is_called(cluster, "ci"), "podsettle is off")
    record = (tmp_path / f"{RELEASE}-record.yaml").read_text()
    assert f"name: {OPT_IN}" in record
    (keep,) = (line for line in done.stdout.splitlines() if "-record.yaml" in line)
    release.shell(f"cd {tmp_path}\n! {keep}")
    assert (tmp_path / f"{RELEASE}-record.yaml").read_text() == record, "a second use keeps it"

    release.shell(f"cd {tmp_path}\n{ELSEWHERE}{commands_in(without_helm)}")
    await_that(lambda: is_called(cluster, "ci"), "podsettle is on again")
    cluster.request("DELETE", CONFIGURATION)
    await_that(lambda: not is_called(cluster, "ci"), "podsettle is off again")
    release.shell(ELSEWHERE + commands_in(with_helm))
    await_that(lambda: is_called(cluster, "ci"), "podsettle is on again by helm")


def test_switch_is_refused_until_the_tool_that_would_undo_it_is_suspended(
    release: Installation, tmp_path: Path
) -> None:
    cluster = release.cluster
    await_that(lambda: is_called(cluster, "ci"), "podsettle is on")
    label = "helm.toolkit.fluxcd.io/name"
    cluster.request("PATCH", CONFIGURATION, {"metadata": {"labels": {label: "settle"}}})
    refused = kill_switch(cluster.kubeconfig, tmp_path, "--yes")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "could be created again" in refused.stderr
    assert "\n    Flux:\n      flux --kubeconfig=" in refused.stderr
    assert exists(release)
    assert list(tmp_path.iterdir()) == []
    done = kill_switch(cluster.kubeconfig, tmp_path, "--yes", "--suspended")
    assert done.returncode == 0, done.stderr
    assert "may take minutes to create it again: Flux" in done.stdout
    assert not exists(release)
    release.shell(done.stdout.splitlines()[-1])
    await_that(lambda: is_called(cluster, "ci"), "podsettle is on again")
    cluster.request("PATCH", CONFIGURATION, {"metadata": {"labels": {label: None}}})


def test_kill_switch_names_the_right_that_its_user_lacks_and_changes_nothing(
    release: Installation, tmp_path: Path
) -> None:
    cluster = release.cluster
    await_that(lambda: is_called(cluster, "ci"), "podsettle is on")
    namespace = cluster.namespace("users-", service_accounts=("reader", "stranger"))
    grant(cluster, namespace, ["get", "list"], "reader", namespace)

    def run(account: str) -> tuple[int, str]:
        kubeconfig: Json = json.loads(cluster.kubeconfig.read_text())
        token = cluster.token_for(account, namespace)
        kubeconfig["users"] = [{"name": "admin", "user": {"token": token}}]
        path = tmp_path / account
        path.write_text(json.dumps(kubeconfig))
        done = kill_switch(path, tmp_path, "--yes")
        return done.returncode, done.stderr

    await_that(lambda: "delete" in run("reader")[1], "the reader's binding is in force")
    assert run("reader") == (
        2,
        f"podsettle: kill switch: needs: delete {CONFIGURATIONS}/{RELEASE}; nothing was changed\n",
    )
    code, message = run("stranger")
    assert code == 2
    assert f"needs: list {CONFIGURATIONS} (kubectl --kubeconfig=" in message
    assert exists(release)
    assert {path.name for path in tmp_path.iterdir()} == {"reader", "stranger"}


def test_several_configurations_are_switched_off_by_name(
    release: Installation, tmp_path: Path
) -> None:
    """The second one belongs to the same namespace, and the third calls a URL."""
    cluster = release.cluster
    await_that(lambda: is_called(cluster, "ci"), "podsettle is on")
    (found,) = (each for each in release.get(CONFIGURATION)["webhooks"] if each["name"] == OPT_IN)
    path = CONFIGURATION.rpartition("/")[0]
    url = {"url": "https://198.51.100.1/mutate"}
    foreign = {**found, "name": "other.example.com"}
    for name, webhook in (
        ("second", {**found, "failurePolicy": "Fail"}),
        ("by-url", {**found, "clientConfig": url}),
        ("foreign", foreign),
    ):
        cluster.create(path, {"metadata": {"name": name}, "webhooks": [webhook]})
    flags = ("-n", NAMESPACE, "--yes")
    refused = kill_switch(cluster.kubeconfig, tmp_path, *flags)
    assert refused.returncode == 2
    assert "there are several: podsettle, second; choose one with --configuration" in refused.stderr
    refused = kill_switch(cluster.kubeconfig, tmp_path, "--configuration", "foreign", "--yes")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "foreign has no webhook of podsettle" in refused.stderr
    for name in ("second", "by-url"):
        chosen = ("--configuration", name, "--yes", "--suspended")
        done = kill_switch(cluster.kubeconfig, tmp_path, *chosen)
        assert done.returncode == 0, done.stderr
        assert "helm" not in done.stdout, "the release is not this configuration's"
        back = done.stdout.partition("The way back:\n")[2]
        assert back.startswith("WARNING: it restores failurePolicy Fail") is (name == "second")
        assert cluster.request("GET", f"{path}/{name}").status == 404
    assert exists(release)
    cluster.request("DELETE", f"{path}/foreign")
