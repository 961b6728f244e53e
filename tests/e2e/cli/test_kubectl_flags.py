"""kubectl's flags on podsettle's commands, on a real API server."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.live_cluster import environment_with
from tests.support.planted_cluster import plant
from tests.support.planted_symptoms import PLANTS
from tests.support.process import podsettle, podsettle_process
from tests.support.service_accounts import kubeconfig_of_an_account_with
from webhook import __version__

pytestmark = pytest.mark.slow

CONTAINER = {"name": "main", "image": "example/app:1", "command": ["/bin/quick"]}
JOB_POD = {"restartPolicy": "Never", "containers": [CONTAINER]}


@pytest.fixture(scope="module")
def apps(live_cluster: KubeCluster) -> str:
    """A namespace with a pod of each of two applications, on different nodes."""
    namespace = live_cluster.namespace("apps-")
    for app, node in (("web", "worker-1"), ("db", "worker-2")):
        metadata = {"name": app, "namespace": namespace, "labels": {"app": app}}
        spec = {"nodeName": node, "containers": [CONTAINER]}
        assert live_cluster.create_pod({"metadata": metadata, "spec": spec}).status == 201
    return namespace


@pytest.fixture(scope="module")
def symptoms(live_cluster: KubeCluster) -> str:
    """A namespace with the pod of a TaskRun, which a policy covers, and with a slow volume."""
    namespace = live_cluster.namespace("flags-", labels={"team": "build"})
    plant(live_cluster, next(each for each in PLANTS if each.name == "fs-group"), namespace)
    labels = {"tekton.dev/taskRun": "run"}
    metadata = {"name": "made", "namespace": namespace, "labels": labels}
    spec = {**JOB_POD, "initContainers": [CONTAINER | {"name": "prepare"}]}
    assert live_cluster.create_pod({"metadata": metadata, "spec": spec}).status == 201
    return namespace


def scanned(env: dict[str, str], *arguments: str) -> dict[str, Any]:
    done = podsettle("scan", "-o", "json", *arguments, env=env)
    assert done.returncode in (0, 1), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_scan_looks_at_the_selected_pods(admin: dict[str, str], apps: str) -> None:
    for flags, pods in (
        (["-l", "app=web"], 1),
        (["-l", "app in (web,db)"], 2),
        (["-l", "app!=web", "--field-selector", "spec.nodeName=worker-2"], 1),
        (["--field-selector", "spec.nodeName=none"], 0),
    ):
        assert scanned(admin, "-n", apps, *flags)["pods"] == pods, flags
    # As in kubectl, -A overrides -n.
    assert scanned(admin, "-A", "-n", "no-such", "-l", "app=web")["namespace"] is None


def test_selector_that_cannot_be_read_is_an_error(admin: dict[str, str]) -> None:
    done = podsettle("scan", "--field-selector", "spec.color=red", env=admin)
    assert done.returncode == 2
    assert "spec.color" in done.stderr


def test_explain_finds_an_object_in_all_namespaces(
    live_cluster: KubeCluster, admin: dict[str, str], apps: str
) -> None:
    done = podsettle("explain", "pod/web", "-A", "-o", "yaml", env=admin)
    assert done.returncode == 0, done.stderr
    assert f"namespace: {apps}\n" in done.stdout
    other = live_cluster.namespace("other-")
    metadata = {"name": "db", "namespace": other}
    pod = {"metadata": metadata, "spec": {"containers": [CONTAINER]}}
    assert live_cluster.create_pod(pod).status == 201
    several = podsettle("explain", "pod/db", "-A", env=admin)
    assert several.returncode == 2
    assert f"pod/db: it is in {apps}, {other}; choose one with -n" in several.stderr
    absent = podsettle("explain", "pod/none", "-A", env=admin)
    assert "pod/none in all namespaces: it does not exist" in absent.stderr


def test_commands_have_the_rights_of_the_user_of_the_flag(admin: dict[str, str]) -> None:
    denied = podsettle("explain", "pod/any", "-n", "ci", "--as", "jane", env=admin)
    assert denied.returncode == 2
    assert "needs the right to get pods/any in namespace ci" in denied.stderr
    # The printed command asks about the same user.
    assert "kubectl --as=jane auth can-i" in denied.stderr
    groups = ("--as", "jane", "--as-group", "ops", "--as-group", "system:masters")
    allowed = podsettle("explain", "pod/any", "-n", "ci", *groups, env=admin)
    assert "pod/any in namespace ci: it does not exist" in allowed.stderr


_PRINTED = re.compile(
    r"\b(kubectl|helm|podsettle (?:doctor|explain|export|preview|scan)) (?!and )(.*)"
)
"""A command that uses a cluster, and what follows it."""


def commands_without(output: str, kubeconfig: Path, context: str) -> list[str]:
    """Return the printed commands that lack a flag. A comment may break a command into lines."""
    text = " ".join(output.replace("\n#", "\n").split())
    lacking = []
    for name, rest in _PRINTED.findall(re.sub(r"(?=\b(kubectl|helm|podsettle) )", "\n", text)):
        own = "--kube-context" if name == "helm" else "--context"
        flags = shlex.join((f"--kubeconfig={kubeconfig}", f"{own}={context}"))
        if not rest.startswith(flags):
            lacking.append(f"{name} {rest}")
    return lacking


@pytest.mark.parametrize("odd", ["", "; it's | $(x)"])
def test_every_printed_command_has_the_flags_that_chose_the_cluster(
    live_cluster: KubeCluster, symptoms: str, tmp_path: Path, odd: str
) -> None:
    context, kubeconfig = f"prod{odd}", tmp_path / f"config{odd}"
    live_cluster.write_kubeconfig(kubeconfig, other_contexts={context: ""})
    chosen = ("--kubeconfig", kubeconfig, "--context", context)
    namespace = symptoms
    run = {"apiVersion": "tekton.dev/v1", "kind": "TaskRun"}
    template = {"apiVersion": "template.openshift.io/v1", "kind": "Template"}
    for arguments, document, count in (
        (("doctor",), None, 0),
        (("scan", "-n", namespace), None, 1),
        (("export",), None, 2),
        (("export", "-o", "json"), None, 2),
        (("explain", "pod/made", "-n", namespace), None, 0),
        (("explain", "pod/made", "-n", namespace, "--as", "jane"), None, 1),
        (("explain", "pod/made", "-A", "--as", "jane"), None, 1),
        (("explain", "taskrun/made"), None, 2),
        (("preview", "-"), run | {"metadata": {"name": "run", "namespace": namespace}}, 1),
        (("preview", "-"), run | {"metadata": {"name": "none", "namespace": namespace}}, 1),
        (("preview", "-"), template | {"metadata": {"name": "t"}}, 1),
    ):
        stdin = json.dumps(document) if document else None
        done = podsettle(*arguments, *chosen, stdin=stdin)
        output = done.stdout + done.stderr
        assert commands_without(output, kubeconfig, context) == [], arguments
        assert output.count("--kubeconfig=") >= count, (arguments, output)


def test_requests_are_logged_if_a_flag_says_so(admin: dict[str, str]) -> None:
    done = podsettle_process("version", "--log-requests", env=admin)
    assert done.stdout.startswith(f"client: {__version__}\n")
    assert "GET https://" in done.stderr
    assert " 200 in " in done.stderr


def test_scan_with_rights_in_one_namespace_says_how_to_scan_it(
    live_cluster: KubeCluster, tmp_path: Path
) -> None:
    name = live_cluster.namespace("own-")
    rule = {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["list"]}
    env = environment_with(kubeconfig_of_an_account_with(live_cluster, name, [rule], tmp_path))
    done = podsettle("scan", env=env)
    command = f"podsettle scan -n {name}"
    assert (done.returncode, done.stderr) == (
        2,
        f"podsettle: scan: you may list the pods of namespace {name}, not of all namespaces: "
        f"{command}\n",
    )
    assert scanned(env, *command.split()[2:])["pods"] == 0


def test_cron_job_is_explained_with_the_pods_of_its_jobs(
    live_cluster: KubeCluster, admin: dict[str, str], apps: str
) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    spec = {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": template}}}
    path = f"/apis/batch/v1/namespaces/{apps}/cronjobs"
    live_cluster.create(path, {"metadata": {"name": "nightly"}, "spec": spec})
    for job in ("nightly-29000000", "nightly-by-hand"):
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job,
                 "controller": True}  # fmt: skip
        metadata = {"name": f"{job}-a", "namespace": apps, "ownerReferences": [owner]}
        pod = {"metadata": metadata, "spec": {"containers": [CONTAINER]}}
        assert live_cluster.create_pod(pod).status == 201
    for words in (["cronjob/nightly"], ["cronjobs.batch", "nightly"]):
        done = podsettle("explain", *words, "-n", apps, "-o", "json", env=admin)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["kind"], found["name"]) == ("CronJob", "nightly")
        assert [each["examples"] for each in found["pods"]] == [["nightly-29000000-a"]]
