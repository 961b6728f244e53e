"""`podsettle doctor` and `podsettle explain` about native policies, without an installation.

The commands of the advice run as they are printed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from tests.support.e2e_pods import Json, create, simple_pod
from tests.support.factories import policy_document
from tests.support.kube.cluster import KubeCluster
from tests.support.live_cluster import account_with
from tests.support.markdown import Page
from tests.support.native_policies import API_VERSION, FLAGS
from tests.support.page_commands import shell_texts
from tests.support.paths import DOCS
from tests.support.policy_objects import POLICIES, install_crd
from tests.support.process import PODSETTLE
from tests.support.waiting import await_that
from tools.build import programs
from webhook.cli import main

pytestmark = pytest.mark.slow

OBJECT = f"{POLICIES}/fields"
NATIVE = "MutatingAdmissionPolicy fields.podsettle.dev, exported by podsettle "
API = "" if API_VERSION == "v1" else f" --api-version {API_VERSION}"


class Line(NamedTuple):
    """A line of a report."""

    check: str
    state: str
    result: str
    commands: list[str]
    right: str


@pytest.fixture(scope="module")
def own() -> Iterator[KubeCluster]:
    """A cluster with the CRD, without podsettle, and with the namespace ci."""
    with KubeCluster.start(*FLAGS) as cluster:
        install_crd(cluster)
        cluster.namespace("ci")
        yield cluster


@pytest.fixture
def exported(own: KubeCluster) -> Iterator[KubeCluster]:
    """The cluster with the SettlePolicy `fields`, exported and in force."""
    own.create(POLICIES, policy_document("fields", remedies={"seLinuxChangePolicy": "Recursive"}))
    run(own, f"podsettle export fields{API} | kubectl apply -f -")
    await_that(lambda: is_changed(own), "the native policy is in force")
    yield own
    own.request("DELETE", OBJECT)
    run(own, removal_on_the_page())
    await_that(lambda: not is_changed(own), "the native policy is gone")


def removal_on_the_page() -> str:
    """Return the command that removes all native policies, from the page."""
    texts = shell_texts(Page(DOCS / "export.md"))
    (command,) = [each for each in texts if each.startswith("kubectl delete ")]
    return command


def is_changed(cluster: KubeCluster) -> bool:
    made = create(cluster, simple_pod("a", "ci"), dry_run=True)
    return "seLinuxChangePolicy" in made["spec"]["securityContext"]


def run(cluster: KubeCluster, command: str) -> None:
    """Run a printed command in a shell."""
    kubectl = programs().kubectl
    assert kubectl
    path = f"{kubectl.parent}:{Path(PODSETTLE).parent}:{os.environ['PATH']}"
    environment = {
        "PATH": path,
        "HOME": str(cluster.directory),
        "KUBECONFIG": str(cluster.kubeconfig),
    }
    done = subprocess.run(
        ["sh", "-eu", "-c", command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"


def doctor(cluster: KubeCluster, exit_code: int = 0, kubeconfig: Path | None = None) -> list[Line]:
    """Run doctor in this process, and return its lines."""
    options = ("--kubeconfig", str(kubeconfig or cluster.kubeconfig), "-o", "json")
    done = CliRunner().invoke(main, ["doctor", *options])
    assert done.exit_code == exit_code, done.output
    return [
        Line(
            each["check"],
            each["state"],
            each["result"],
            each["advice"]["commands"] if each["advice"] else [],
            each["right"],
        )
        for each in json.loads(done.stdout)["checks"]
    ]


def explained(cluster: KubeCluster, pod: str) -> Json:
    options = ("-n", "ci", "--kubeconfig", str(cluster.kubeconfig), "-o", "json")
    done = CliRunner().invoke(main, ["explain", f"pod/{pod}", *options])
    assert done.exit_code == 0, done.output
    answer: Json = json.loads(done.stdout)
    return answer


def test_exported_policy_needs_no_installation_and_can_be_removed(exported: KubeCluster) -> None:
    installation, own = doctor(exported)
    assert installation.result == "there is no Deployment of podsettle; native policies need none"
    assert (own.check, own.state) == ("native policies", "ok")
    assert own.result.startswith(NATIVE)
    assert own.result.endswith(" from SettlePolicy fields: it is in force")
    (removal,) = own.commands
    run(exported, removal)
    (installation,) = doctor(exported, exit_code=1)
    assert installation.state == "fault"


def test_changed_settle_policy_is_found_and_exported_again(exported: KubeCluster) -> None:
    spec = {"namespaceSelector": None, "remedies": {"fsGroupChangePolicy": "OnRootMismatch"}}
    exported.request("PATCH", OBJECT, {"spec": spec})
    _, changed = doctor(exported)
    assert changed.state == "warning"
    assert "SettlePolicy fields, or one to which it yields, has changed since" in changed.result
    assert "would not write its binding fields.podsettle.dev" in changed.result
    *mending, _ = changed.commands
    assert len(mending) == 2
    for command in mending:
        run(exported, command)
    _, own = doctor(exported)
    assert own.state == "ok", own.result
    await_that(lambda: not is_changed(exported), "the new export is in force")


def test_description_and_defaults_of_the_api_server_are_no_change(exported: KubeCluster) -> None:
    exported.request("PATCH", OBJECT, {"spec": {"description": "x", "action": "Mutate"}})
    _, own = doctor(exported)
    assert own.state == "ok", own.result


def test_unbound_policy_and_one_without_its_settle_policy_are_found(exported: KubeCluster) -> None:
    run(exported, "kubectl delete mutatingadmissionpolicybinding fields.podsettle.dev")
    _, unbound = doctor(exported)
    assert "it is not in force, because it has no binding" in unbound.result
    run(exported, unbound.commands[0])
    exported.request("DELETE", OBJECT)
    _, gone = doctor(exported)
    assert (gone.state, len(gone.commands)) == ("warning", 1)
    assert "it is in force; there is no SettlePolicy fields" in gone.result


def test_guard_is_useful_only_while_a_policy_settles(exported: KubeCluster) -> None:
    run(exported, "podsettle export fields --guard | kubectl apply -f -")
    _, settling, guard = doctor(exported)
    assert (settling.state, guard.state) == ("ok", "ok")
    assert guard.result.startswith("ValidatingAdmissionPolicy guard.fields.podsettle.dev, exported")
    run(exported, settling.commands[-1])
    _, guard = doctor(exported)
    assert guard.state == "warning"
    assert "nothing settles the pods that it reports" in guard.result
    run(exported, guard.commands[-1])
    assert len(doctor(exported, exit_code=1)) == 1


def test_missing_rights_are_named(exported: KubeCluster, tmp_path: Path) -> None:
    group = "admissionregistration.k8s.io"
    resources = ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"]
    rule = {"apiGroups": [group], "resources": resources, "verbs": ["list"]}
    kubeconfig, _ = account_with(exported, tmp_path, rule)
    lines = doctor(exported, kubeconfig=kubeconfig)
    assert [line.state for line in lines] == ["not_looked_at", "ok", *["not_looked_at"] * 2]
    assert [line.right for line in lines[2:]] == [
        "list settlepolicies",
        "list validatingadmissionpolicies",
    ]


def test_pod_learns_which_exported_policy_settled_it(exported: KubeCluster) -> None:
    create(exported, simple_pod("settled", "ci"))
    answer = explained(exported, "settled")
    assert answer["verdict"] == "podsettle changed this pod when it was created."
    selects, applied = answer["notes"]
    assert selects.startswith(NATIVE)
    assert "applied seLinuxChangePolicy to this pod, as the API server does not call" in applied
    assert [each["today"] for each in answer["applied"]] == [""]


def test_pod_from_before_the_export_learns_that_a_new_one_would_be_changed(
    own: KubeCluster, request: pytest.FixtureRequest
) -> None:
    create(own, simple_pod("older", "ci"))
    exported = request.getfixturevalue("exported")
    answer = explained(exported, "older")
    assert answer["called"] == "False"
    assert "a native policy would change a new pod like this one" in answer["verdict"]
