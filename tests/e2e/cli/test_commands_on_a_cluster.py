"""`podsettle preview`, `check`, `scan` and `version` on a cluster, as the command of kubectl."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.factories import policy_document
from tests.support.kube.cluster import KubeCluster
from tests.support.kubeconfigs import write_kubeconfig
from tests.support.live_cluster import account_with, add_node
from tests.support.markdown import Page
from tests.support.paths import DOCS, EXAMPLES
from tests.support.process import PODSETTLE, podsettle
from tests.support.reviews import load_pod
from tools.build import programs

pytestmark = pytest.mark.slow

SETTLE = Path(PODSETTLE).with_name("kubectl-settle")
QUICK = {"name": "quick", "image": "example/app:1", "command": ["/bin/quick"]}


def quick_pod(name: str, **metadata: Any) -> dict[str, Any]:
    spec = {"initContainers": [QUICK], "containers": [QUICK | {"name": "main"}]}
    metadata = {"name": name, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def previewed(*arguments: str | Path, env: dict[str, str], document: object) -> dict[str, Any]:
    done = podsettle("preview", "-o", "json", *arguments, "-", env=env, stdin=json.dumps(document))
    assert done.returncode == 0, done.stderr
    (pod,) = json.loads(done.stdout)["pods"]
    return {**pod, "stderr": done.stderr}


def test_kubectl_settle_previews_a_file_on_the_cluster_of_the_kubeconfig(
    admin: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(quick_pod("p", namespace="ci")))
    path = f"{SETTLE.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(programs().kubectl), "settle", "preview", "pod.yaml"],
        env=admin | {"PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    title, summary, outcome, *_ = done.stdout.splitlines()
    assert title == "Pod/p in namespace ci  policies: in-cluster"
    assert summary == "  quick is kept alive for at least 500 ms, by policy in-cluster."
    assert outcome.startswith("  Applied postInitSleep quick: ")
    assert outcome.endswith("(by in-cluster)")
    assert "registry.example/podsettle/linger" in done.stdout
    assert "--linger-image IMAGE replaces it" in done.stderr


def test_namespace_of_the_context_is_that_of_pods_that_name_none(
    live_cluster: KubeCluster, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    live_cluster.write_kubeconfig(kubeconfig, other_contexts={"in-ci": "ci"})
    options = ("--kubeconfig", kubeconfig, "--context", "in-ci")
    env = dict(os.environ)
    found = previewed(*options, env=env, document=quick_pod("p"))
    assert (found["namespace"], found["policies"]) == ("ci", ["in-cluster"])
    other = previewed(*options, env=env, document=quick_pod("p", namespace="default"))
    assert (other["namespace"], other["policies"]) == ("default", [])
    assert other["policyMatches"][0]["verdict"] == "NotMatched"


def test_unknown_namespace_is_reported_and_stays_undecided(admin: dict[str, str]) -> None:
    found = previewed(env=admin, document=quick_pod("p", namespace="no-such"))
    note = "namespace 'no-such' is not in the cluster, so no policy can be chosen for its pods"
    assert (found["notes"], found["namespaceKnown"]) == ([note], False)
    assert f"podsettle: {note}\n" in found["stderr"]
    assert [each["reason"] for each in found["outcomes"]] == ["NamespaceUnknown"]


def test_user_without_rights_sees_what_was_not_read(
    live_cluster: KubeCluster, tmp_path: Path
) -> None:
    rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
    _, env = account_with(live_cluster, tmp_path, rule)
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump(policy_document("mine")))
    found = previewed(policy, env=env, document=quick_pod("p", namespace="ci"))
    assert found["policies"] == ["mine"]
    stderr = found["stderr"]
    assert "nodes were not read: it needs the right to list nodes; remedies with" in stderr
    assert "settlepolicies were not read: it needs the right to list settlepolicies" in stderr
    assert "namespaces were not read" not in stderr


def test_namespace_that_could_not_be_read_is_not_said_to_be_missing(
    live_cluster: KubeCluster, tmp_path: Path
) -> None:
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
    _, env = account_with(live_cluster, tmp_path, rule)
    found = previewed(env=env, document=quick_pod("p", namespace="ci"))
    note = "namespace 'ci' could not be read, so no policy can be chosen for its pods"
    assert found["notes"] == [note]
    assert "is not in the cluster" not in found["stderr"]
    flag = "the labels of namespace ci are unknown: --namespace-label KEY=VALUE gives them"
    assert f"podsettle: {flag}\n" in found["stderr"]
    labels = ("--namespace-label", "team=build")
    given = previewed(*labels, env=env, document=quick_pod("p", namespace="ci"))
    assert given["namespaceKnown"]
    assert flag not in given["stderr"]


def test_command_of_a_report_previews_a_pod_of_the_cluster(
    live_cluster: KubeCluster, admin: dict[str, str], tmp_path: Path
) -> None:
    """The command of the page, with a pod on a node that the policy does not concern.

    Another policy of the cluster has the remedy already.
    """
    page = Page(DOCS / "exit-255.md")
    (tmp_path / "tekton.yaml").write_text(yaml.safe_dump(page.policies[0]))
    pod = load_pod(EXAMPLES / "pods" / "tekton-taskrun.yaml")
    pod["metadata"] |= {"namespace": "ci", "name": "live"}
    pod["spec"]["nodeName"] = "worker-2"
    # The namespace has no other account than `default`.
    for key in ("serviceAccount", "serviceAccountName"):
        pod["spec"].pop(key, None)
    live_cluster.create("/api/v1/namespaces/ci/pods", pod)
    stored = live_cluster.kubectl("get", "pod", "live", "-n", "ci", "-o", "yaml").stdout
    assert "nodeName: worker-2" in stored
    typed = page.command("preview")
    arguments = [
        str(tmp_path / word) if word == "tekton.yaml" else word for word in typed.arguments
    ]
    done = podsettle(*arguments, env=admin, stdin=stored)
    assert done.returncode == 0, done.stderr
    assert "spec.nodeName is left out" in done.stderr
    outcomes = [line for line in done.stdout.splitlines() if line.startswith("  Shadowed")]
    assert [line.split()[2] for line in outcomes] == ["prepare:", "place-scripts:"]


@pytest.fixture
def task_run_pods(live_cluster: KubeCluster) -> Iterator[None]:
    names = ["build-pod", "build-pod-retry1"]
    for name in names:
        pod = quick_pod(name, namespace="ci", labels={"tekton.dev/taskRun": "build"})
        live_cluster.create("/api/v1/namespaces/ci/pods", pod)
    yield
    for name in names:
        live_cluster.request("DELETE", f"/api/v1/namespaces/ci/pods/{name}")


@pytest.mark.usefixtures("task_run_pods")
def test_task_run_names_its_pods(admin: dict[str, str]) -> None:
    metadata = {"name": "build", "namespace": "ci"}
    run = {"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": metadata}
    done = podsettle("preview", "-", env=admin, stdin=json.dumps(run))
    assert done.returncode == 2
    assert (
        "podsettle: stdin:1: TaskRun/build: its pods are ci/build-pod, ci/build-pod-retry1: "
        "podsettle explain pod/build-pod -n ci\n"
    ) in done.stderr
    run["metadata"] = {"name": "other", "namespace": "ci"}
    done = podsettle("preview", "-", env=admin, stdin=json.dumps(run))
    assert "Tekton creates the pods of a TaskRun; preview one of them: " in done.stderr


def test_check_names_what_the_cluster_lacks_and_what_is_shadowed(
    live_cluster: KubeCluster, admin: dict[str, str]
) -> None:
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    selector = {"nodeSelector": {"pool": "handled"}}
    made = {"metadata": {"name": "unhandled"}, "handler": "fast", "scheduling": selector}
    live_cluster.create(classes, made)
    add_node(live_cluster, "handled", "cri-o://1.36.0", runtimeHandlers=[{"name": "runc"}])
    names = {"matchLabels": {"kubernetes.io/metadata.name": "no-such"}}
    policies = [
        policy_document("a", remedies={"runtimeClass": {"name": "unhandled"}}),
        policy_document("b", remedies={"runtimeClass": {"name": "missing"}}, priority=-1),
        policy_document("c", namespaceSelector=names, remedies={"kubeletGate": {}}),
        policy_document("d", namespaceSelector={"matchLabels": {"team": "build", "x": "z"}},
                        priority=-1),
    ]  # fmt: skip
    text = "---\n".join(map(yaml.safe_dump, policies))
    try:
        done = podsettle("check", "-v", "-n", "absent", "-", env=admin, stdin=text)
    finally:
        # Tests that share the cluster count its nodes.
        for path in ("/api/v1/nodes/handled", f"{classes}/unhandled"):
            assert live_cluster.request("DELETE", path).status == 200
    assert (done.returncode, done.stdout) == (0, "")
    title = f"tests ({live_cluster.url})"
    lines = [line.removeprefix("podsettle: ") for line in done.stderr.splitlines()]
    advice = "raise the priority of the policy, or narrow its selectors"
    assert f"b: RuntimeClass 'missing' is not in {title}" in lines
    assert f"c: namespace 'no-such' is not in {title}" in lines
    assert f"namespace 'absent' is not in {title}" in lines
    assert (
        "a: none of the nodes of RuntimeClass 'unhandled' lists its handler 'fast', so the remedy "
        "is skipped: podsettle node-config"
    ) in lines
    shadowed = "never acts, because {} sets it first for the same pods: " + advice
    assert f"b: runtimeClass {shadowed.format('a')}" in lines
    assert f"d: postInitSleep {shadowed.format('in-cluster')}" in lines
    assert any(line.startswith("d: still needed: 1 of 3 nodes still runs") for line in lines)
    assert lines[0] == "4 policies are fine"


def test_check_without_rights_says_so_in_one_line(
    live_cluster: KubeCluster, tmp_path: Path
) -> None:
    _, env = account_with(live_cluster, tmp_path)
    done = podsettle("check", "-", env=env, stdin=yaml.safe_dump(policy_document("a")))
    assert done.returncode == 0
    first, line = done.stderr.splitlines()
    assert first == "podsettle: 1 policy is fine"
    assert line.startswith("podsettle: not compared with the settlepolicies, namespaces, ")
    assert "list runtimeclasses" in line


def test_check_compares_the_namespaces_that_the_user_may_read_by_name(
    live_cluster: KubeCluster, tmp_path: Path
) -> None:
    rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
    _, env = account_with(live_cluster, tmp_path, rule)
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["ci", "gone"]}
    policy = policy_document("a", namespaceSelector={"matchExpressions": [names]})
    done = podsettle("check", "-", env=env, stdin=yaml.safe_dump(policy))
    assert f"podsettle: a: namespace 'gone' is not in tests ({live_cluster.url})\n" in done.stderr
    assert "namespace 'ci'" not in done.stderr


def test_check_goes_on_if_the_default_cluster_does_not_answer(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path, "https://127.0.0.1:1")
    text = yaml.safe_dump(policy_document("a"))
    env = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    done = podsettle("check", "-v", "-", env=env, stdin=text)
    assert done.returncode == 0
    first, line, export = done.stderr.splitlines()
    assert first == "podsettle: 1 policy is fine"
    assert line.startswith("podsettle: not compared with a cluster: the API server does not answer")
    assert export == "podsettle: podsettle export cannot print a/postInitSleep"
    chosen = podsettle("check", "--kubeconfig", kubeconfig, "-", stdin=text)
    assert chosen.returncode == 2


def create_installation(cluster: KubeCluster, namespace: str = "", **container: Any) -> str:
    """Create a Deployment of podsettle, and return its path."""
    labels = {"app.kubernetes.io/name": "podsettle", "app.kubernetes.io/component": "webhook"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "containers": [{"name": "podsettle", "image": "registry.example/p:9", **container}]
            },
        },
    }
    namespace = namespace or cluster.namespace("podsettle-")
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    cluster.create(path, {"metadata": {"name": "podsettle", "labels": labels}, "spec": spec})
    return f"{path}/podsettle"


def test_settings_come_from_the_installation(
    live_cluster: KubeCluster, admin: dict[str, str]
) -> None:
    namespace = live_cluster.namespace("podsettle-")
    arguments = [
        "serve",
        "--linger-image=registry.example/installed:1",
        "--docs-url=https://docs.example/why",
        f"--own-namespace={namespace}",
    ]
    path = create_installation(live_cluster, namespace, args=arguments)
    try:
        found = previewed(env=admin, document=quick_pod("p", namespace="ci"))
        assert "registry.example/installed:1" in json.dumps(found["patch"])
        assert "--linger-image" not in found["stderr"]
        (outcome,) = found["outcomes"]
        assert outcome["explanation"] == "https://docs.example/why#applied"
        flag = ("--linger-image", "registry.example/flag:1")
        flagged = previewed(*flag, env=admin, document=quick_pod("p", namespace="ci"))
        assert "registry.example/flag:1" in json.dumps(flagged["patch"])
        own = previewed("-n", namespace, env=admin, document=quick_pod("p"))
        assert [each["reason"] for each in own["outcomes"]] == ["ProtectedNamespace"]
        done = podsettle("version", env=admin)
        assert f"registry.example/p:9 (Deployment {namespace}/podsettle)" in done.stdout
    finally:
        live_cluster.request("DELETE", path)


def verdict_of_unsettled_pods(env: dict[str, str], *arguments: str) -> dict[str, str]:
    """What a scan says about pods that a policy covers and that are not settled."""
    done = podsettle("scan", "-o", "json", *arguments, env=env)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    (verdict,) = (each["verdict"] for each in report["symptoms"] if each["id"] == "not-settled")
    return dict(verdict)


def test_scan_with_namespaces_that_it_may_only_get_says_which_it_looked_at(
    live_cluster: KubeCluster, tmp_path: Path
) -> None:
    lists = [
        {"apiGroups": [group], "resources": resources, "verbs": ["list"]}
        for group, resources in (
            ("", ["pods", "nodes", "events"]),
            ("node.k8s.io", ["runtimeclasses"]),
            ("podsettle.dev", ["settlepolicies"]),
        )
    ]
    get = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
    _, env = account_with(live_cluster, tmp_path, get, *lists)
    verdict = verdict_of_unsettled_pods(env)
    assert verdict["answer"] == "unknown"
    assert "namespaces (needs the right to list namespaces; only default)" in verdict["text"]
    assert verdict_of_unsettled_pods(env, "-n", "default")["answer"] == "none"


def test_arguments_of_a_tenants_deployment_hide_no_pods_and_reach_no_terminal(
    live_cluster: KubeCluster, admin: dict[str, str]
) -> None:
    path = create_installation(
        live_cluster,
        image="i\x1b]0;pwned\x07",
        args=["serve", "--own-namespace=ci", "--docs-url=https://evil.example/\x1b[31m"],
    )
    try:
        found = previewed(env=admin, document=quick_pod("p", namespace="ci"))
        assert "evil" not in json.dumps(found)
        assert {each["reason"] for each in found["outcomes"]} == {"HelperImageMissing"}
        done = podsettle("version", env=admin)
        assert "server: i\\x1b]0;pwned\\x07 (Deployment podsettle-" in done.stdout
    finally:
        live_cluster.request("DELETE", path)


def test_assumed_helper_is_explained(live_cluster: KubeCluster, admin: dict[str, str]) -> None:
    paths = [create_installation(live_cluster) for _ in range(2)]
    why = "there are several Deployments of podsettle: podsettle-"
    try:
        found = previewed(env=admin, document=quick_pod("p", namespace="ci"))
        assert f"the image of the helper, because {why}" in found["stderr"]
        report = json.loads(podsettle("scan", "-o", "json", env=admin).stdout)
        assert any(f"the image of a helper, because {why}" in note for note in report["notes"])
        assert f"\nserver: not known: {why}" in podsettle("version", env=admin).stdout
    finally:
        for path in paths:
            live_cluster.request("DELETE", path)


@pytest.mark.parametrize("verb", ["list", "get"])
def test_scan_of_a_namespace_that_does_not_exist_is_an_error(
    live_cluster: KubeCluster, tmp_path: Path, verb: str
) -> None:
    rule = {"apiGroups": [""], "resources": ["namespaces", "pods"], "verbs": [verb]}
    _, env = account_with(live_cluster, tmp_path, rule)
    done = podsettle("scan", "-n", "no-such", env=env)
    assert done.returncode == 2
    assert done.stderr.endswith("podsettle: scan: namespace no-such does not exist\n")
