"""One release of the chart: what podsettle does with the rights that the chart gives it."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trustme
import yaml

from tests.support.e2e_pods import init_names, is_called, normal, simple_pod
from tests.support.helm import NAMESPACE
from tests.support.helm_release import (
    ACCOUNT,
    BY_SELECTOR,
    CONFIGURATION,
    FAIL,
    HOST,
    OPT_IN,
    OWN,
    POLICIES,
    RELEASE,
    REQUIRED,
    WEBHOOK_TIMEOUT_SECONDS,
    Installation,
    policy,
    released,
)
from tests.support.kube.cluster import AUDIT_POLICY, KubeCluster
from tests.support.paths import CHART
from tests.support.process import free_port
from tests.support.pull_secrets import docker_config
from tests.support.registry import PASSWORD, USER, basic, htpasswd, made_image, start_registry
from tests.support.service_accounts import await_grant
from tests.support.waiting import await_that
from tests.support.webhook_calls import calls, created
from webhook.core.pull_secrets import DOCKER_CONFIG_JSON

Json: TypeAlias = dict[str, Any]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
AUDITED: Json = {
    **AUDIT_POLICY,
    "rules": [{"level": "Metadata", "users": [ACCOUNT]}, *AUDIT_POLICY["rules"]],
}
"""Reads of podsettle's account, too."""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A release with the default values and one ready replica."""
    directory = tmp_path_factory.mktemp("release")
    audit_policy = directory / "audit-policy.json"
    audit_policy.write_text(json.dumps(AUDITED))
    audited = f"--audit-policy-file={audit_policy}"
    with released(directory, api_server=[audited]) as installation:
        installation.cluster.create(POLICIES, policy("opt-in"))
        yield installation


def test_podsettle_writes_the_ca_bundle_under_its_own_field_manager(release: Installation) -> None:
    (webhook,) = release.webhooks().values()
    assert b"BEGIN CERTIFICATE" in base64.b64decode(webhook["clientConfig"]["caBundle"])
    assert _manager_of(release, f'k:{{"name":"{OPT_IN}"}}', "caBundle") == "podsettle"


def _manager_of(release: Installation, entry: str, field: str) -> str:
    (found,) = (
        each["manager"]
        for each in release.get(CONFIGURATION)["metadata"]["managedFields"]
        if f"f:{field}" in each["fieldsV1"]["f:webhooks"].get(entry, {}).get("f:clientConfig", {})
    )
    manager: str = found
    return manager


def test_pods_in_an_opted_in_namespace_are_settled_and_no_others(release: Installation) -> None:
    cluster = release.cluster
    chosen = cluster.namespace("chosen-", labels={"podsettle.dev/policy": "opt-in"})
    other = cluster.namespace("other-")
    await_that(lambda: is_called(cluster, chosen), "the namespace that opted in is covered")
    assert not is_called(cluster, other)
    # podsettle's own namespace stays excluded, whatever its label.
    cluster.namespace(NAMESPACE, labels={"podsettle.dev/policy": "opt-in"})
    assert not is_called(cluster, NAMESPACE)
    cluster.namespace(chosen, labels={"podsettle.dev/enabled": "false"})
    await_that(lambda: not is_called(cluster, chosen), "the switch counts")


def test_helm_upgrade_keeps_the_fields_that_podsettle_wrote(release: Installation) -> None:
    """The caBundle, the second webhook, the Secret, the Lease; and back to the previous values."""
    cluster = release.cluster
    cluster.create(POLICIES, policy("wide", namespaceSelector={}))
    namespace = cluster.namespace("wide-")
    await_that(lambda: is_called(cluster, namespace), "a policy for every namespace is in force")
    assert set(release.webhooks()) == {OPT_IN, BY_SELECTOR}
    before = release.written_by_podsettle()
    assert all(before.values())

    def now(timeout: int, *excluded: str) -> None:
        opt_in = release.webhooks()[OPT_IN]
        assert opt_in["timeoutSeconds"] == timeout
        for name in excluded:
            assert name in json.dumps(opt_in["namespaceSelector"])
        await_that(
            lambda: _follows(release.webhooks()[BY_SELECTOR], opt_in),
            "the second webhook follows the first",
        )
        assert release.written_by_podsettle() == before
        assert is_called(cluster, namespace)

    notes = release.helm(
        "upgrade", RELEASE, CHART, REQUIRED, "--set=lingerImage=registry.example/linger:2",
        "--set=webhook.timeoutSeconds=3,webhook.excludedNamespaces={kube-system,storage}",
    )  # fmt: skip
    assert "podsettle was upgraded to" in notes
    assert "kubectl get settlepolicies" in notes
    assert "is installed" not in notes
    now(3, "kube-system", "storage")
    # Helm 3 computes a three-way merge on the client side.
    release.helm(
        "upgrade", RELEASE, CHART, "--server-side=false", REQUIRED, "--set=webhook.timeoutSeconds=4"
    )  # fmt: skip
    now(4, "kube-public")
    release.helm("rollback", RELEASE, "1")
    now(WEBHOOK_TIMEOUT_SECONDS, "kube-public")

    cluster.request("DELETE", f"{POLICIES}/wide")
    await_that(lambda: set(release.webhooks()) == {OPT_IN}, "the second webhook goes")
    await_that(lambda: not is_called(cluster, namespace), "nobody is asked any more")


def mirror_pod(namespace: str) -> Json:
    pod = simple_pod("mirror", namespace)
    pod["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    pod["spec"] |= {"nodeName": "node", "automountServiceAccountToken": False}
    return pod


def windows_pod(namespace: str) -> Json:
    pod = simple_pod("windows", namespace)
    pod["spec"]["os"] = {"name": "windows"}
    return pod


def test_reinvocation_changes_nothing_and_match_conditions_skip_it(
    release: Installation,
) -> None:
    """The API server mounts the token into the container that podsettle adds: a reason to call."""
    cluster = release.cluster
    cluster.create(POLICIES, policy("wide", namespaceSelector={}))
    chosen = cluster.namespace("twice-", labels={"podsettle.dev/policy": "opt-in"})
    other = cluster.namespace("once-")
    for namespace in (chosen, other):
        await_that(lambda n=namespace: is_called(cluster, n), "the namespace is covered")  # type: ignore[misc]

    twice, audited = created(cluster, simple_pod("pod", chosen))
    assert calls(audited) == [(OPT_IN, True), (OPT_IN, False)]
    # The pod is the same as after one call.
    once, audited = created(cluster, simple_pod("pod", other))
    assert calls(audited) == [(BY_SELECTOR, True)]
    for pod in (twice, once):
        assert init_names(pod) == ["podsettle-linger", "prepare"]
        mounts = pod["spec"]["initContainers"][0]["volumeMounts"]
        assert any(each["name"].startswith("kube-api-access-") for each in mounts)
    assert _without_applied(twice) == _without_applied(once)

    cluster.request("DELETE", f"{POLICIES}/wide")
    await_that(lambda: set(release.webhooks()) == {OPT_IN}, "the second webhook goes")


def _without_applied(pod: Json) -> Json:
    """Return a pod without the fields that depend on name, time and policy."""
    pod = normal(pod)
    for name in ("applied", "summary"):
        assert pod["metadata"]["annotations"].pop(f"podsettle.dev/{name}")
    return pod


@pytest.mark.parametrize(
    ("made", "reason"), [(mirror_pod, "MirrorPod"), (windows_pod, "WindowsPod")]
)
def test_podsettle_skips_excluded_pods_that_no_match_condition_filters(
    release: Installation, made: Callable[[str], Json], reason: str
) -> None:
    cluster = release.cluster
    namespace = cluster.namespace("alone-", labels={"podsettle.dev/policy": "opt-in"})
    await_that(lambda: is_called(cluster, namespace), "the namespace is covered")
    asked, audited = created(cluster, made(namespace))
    assert calls(audited) == [(OPT_IN, False)]
    assert audited[f"{OPT_IN}/skipped"] == reason
    uncovered, audited = created(cluster, made(cluster.namespace("uncovered-")))
    assert calls(audited) == []
    assert normal(asked) == normal(uncovered)


def _follows(webhook: Json, other: Json) -> bool:
    def excluded(of: Json) -> list[str]:
        (names,) = (
            each["values"]
            for each in of["namespaceSelector"]["matchExpressions"]
            if each["key"] == "kubernetes.io/metadata.name"
        )
        return sorted(names)

    same = all(webhook[key] == other[key] for key in ("timeoutSeconds", "failurePolicy", "rules"))
    return same and excluded(webhook) == excluded(other)


def test_the_crd_is_upgraded_by_the_documented_command(release: Installation) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/settlepolicies.podsettle.dev"
    columns = "/spec/versions/0/additionalPrinterColumns"
    old = release.cluster.request("PATCH", path, [{"op": "remove", "path": columns}])
    assert old.status == 200, old.body
    release.helm("upgrade", RELEASE, CHART, REQUIRED)
    assert "additionalPrinterColumns" not in release.get(path)["spec"]["versions"][0]
    release.shell(release.documented("install.md", "Upgrade"))
    await_that(
        lambda: (
            "opt-in The installed CRD has every field"
            in release.shell(release.documented("install.md", "Upgrade", 1))
        ),
        "the policies say so",
    )
    release.shell(release.documented("install.md", "Upgrade", 2))
    assert release.get(path)["spec"]["versions"][0]["additionalPrinterColumns"]


def test_helm_test_fails_while_podsettle_is_not_ready(release: Installation) -> None:
    """The command of the test pod runs in this process instead of a pod."""
    release.helm("upgrade", RELEASE, CHART, REQUIRED, "--set=helmTest.enabled=true")
    manifests = release.helm("get", "hooks", RELEASE)
    (pod,) = (each for each in yaml.safe_load_all(manifests) if each)
    _, flag, script, url = pod["spec"]["containers"][0]["command"]
    assert url == f"https://{HOST}/readyz?verbose"
    (replica,) = release.replicas

    def ask(port: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, flag, script, url.replace(HOST, f"{release.address}:{port}")],
            capture_output=True,
            text=True,
            check=False,
        )

    asked = ask(replica.port)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert "[+]registration" in asked.stdout
    nobody = ask(free_port())
    assert nobody.returncode == 1
    assert "Connection refused" in nobody.stderr
    release.helm("upgrade", RELEASE, CHART, REQUIRED)
    assert not release.helm("get", "hooks", RELEASE).strip()


@pytest.mark.parametrize(
    ("role", "method", "path", "other"),
    [
        (f"{RELEASE}-metrics-reader", "GET", "/metrics", ("POST", "/preview")),
        (f"{RELEASE}-previewer", "POST", "/preview", ("GET", "/metrics")),
    ],
)
def test_unbound_policy_roles_grant_what_they_name_once_bound(
    release: Installation, role: str, method: str, path: str, other: tuple[str, str]
) -> None:
    cluster = release.cluster
    namespace = cluster.namespace("reader-", service_accounts=("reader", "stranger"))
    binding = {
        "metadata": {"name": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
    }
    cluster.create(f"{RBAC}/clusterrolebindings", binding)
    asked = {"nonResourceAttributes": {"path": path, "verb": method.lower()}}
    await_grant(cluster, f"{namespace}:reader", asked)
    (replica,) = release.replicas
    reader = cluster.token_for("reader", namespace)
    stranger = cluster.token_for("stranger", namespace)

    def status(method: str, path: str, token: str | None) -> int:
        content = simple_pod("pod") if method == "POST" else None
        return replica.request(method, path, token=token, content=content).status_code

    # The server refuses previews until its worker, which has a low priority, has started.
    await_that(lambda: status(method, path, cluster.token) == 200, "the server answers")
    assert status(method, path, reader) == 200
    assert status(*other, reader) == 403
    assert status(method, path, stranger) == 403
    assert status(method, path, None) == 401


def test_cluster_wide_viewers_read_policies_and_only_the_editor_role_writes_them(
    release: Installation,
) -> None:
    """Even `admin` must not write policies, because a policy applies to all namespaces."""
    cluster = release.cluster
    for role in ("view", "edit", "admin"):
        aggregate(cluster, role)
    namespace = cluster.namespace("tenant-")
    own = (f"{RELEASE}-policy-viewer", f"{RELEASE}-policy-editor")
    for role in ("view", "edit", "admin", *own):
        bind(cluster, f"user-{role}", role)
    bind(cluster, "user-of-a-namespace", "admin", namespace)

    def may(user: str, verb: str) -> bool:
        flags = (verb, "settlepolicies.podsettle.dev", f"--as={user}")
        answered = cluster.kubectl("auth", "can-i", *flags)
        assert answered.stdout.strip() in ("yes", "no"), answered.stderr
        return answered.stdout.strip() == "yes"

    reading, writing = {"get", "list", "watch"}, {"create", "update", "patch", "delete"}

    def rights(user: str) -> set[str]:
        return {verb for verb in reading | writing if may(user, verb)}

    def expect(user: str, verbs: set[str]) -> None:
        await_that(lambda: rights(user) == verbs, f"{user}: {rights(user)}, not {verbs}")

    for role in ("view", "edit", "admin", own[0]):
        expect(f"user-{role}", reading)
    expect(f"user-{own[1]}", reading | writing)
    expect("user-of-a-namespace", set())


def bind(cluster: KubeCluster, user: str, role: str, namespace: str = "") -> None:
    """Grant a ClusterRole to a user, in the cluster or in one namespace."""
    kind = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
    group = "rbac.authorization.k8s.io"
    cluster.create(
        f"{RBAC}/{kind}",
        {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "apiGroup": group, "name": user}],
        },
    )


def aggregate(cluster: KubeCluster, role: str) -> None:
    """Do the work of the controller for aggregated ClusterRoles: unite the selected rules."""
    path = f"{RBAC}/clusterroles"
    found = cluster.request("GET", f"{path}/{role}").body
    rules = []
    for selector in found["aggregationRule"]["clusterRoleSelectors"]:
        (label,) = selector["matchLabels"].items()
        selected = cluster.request("GET", f"{path}?labelSelector={label[0]}%3D{label[1]}").body
        rules += [rule for each in selected["items"] for rule in each["rules"] or ()]
    status, answer, _ = cluster.request("PUT", f"{path}/{role}", found | {"rules": rules})
    assert status == 200, answer


def test_policy_has_a_status_after_installation(release: Installation) -> None:
    await_that(
        lambda: release.get(f"{POLICIES}/opt-in").get("status", {}).get("conditions"),
        "the status is written",
    )


def test_audit_log_shows_exactly_the_permissions_of_the_chart(release: Installation) -> None:
    """Once it has run, was asked who scrapes, and about a namespace that nobody knows yet."""
    (replica,) = release.replicas
    stranger = release.cluster.token_for("default")
    assert replica.request("GET", "/metrics", token=stranger).status_code == 403
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE",
            "namespace": "not-there-yet",
            "object": simple_pod("pod", "not-there-yet"),
        },
    }
    answer = replica.request("POST", "/mutate?timeout=2s", content=review)
    assert answer.json()["response"]["allowed"] is True

    granted = {
        (group, resource, verb)
        for rule in _rules(release)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    def used() -> set[tuple[str, str, str]]:
        return {_right(event) for event in _events(release) if "objectRef" in event}

    # An event is written when its request has ended, or a watch begun.
    await_that(lambda: used() >= granted, f"used: {granted - used()}")
    assert used() == granted
    forbidden = [
        f"{event['verb']} {event['requestURI']}"
        for event in _events(release)
        if event["responseStatus"]["code"] in (401, 403)
    ]
    assert forbidden == []


def _rules(release: Installation) -> list[Json]:
    cluster_role = release.get(f"{RBAC}/clusterroles/{RELEASE}")
    role = release.get(f"{RBAC}/namespaces/{NAMESPACE}/roles/{RELEASE}")
    return [*cluster_role["rules"], *role["rules"]]


def _events(release: Installation) -> list[Json]:
    return [
        event for event in release.cluster.audit_events() if event["user"]["username"] == ACCOUNT
    ]


def _right(event: Json) -> tuple[str, str, str]:
    reference = event["objectRef"]
    subresource = f"/{reference['subresource']}" if "subresource" in reference else ""
    return reference.get("apiGroup", ""), reference["resource"] + subresource, event["verb"]


def test_events_are_written_with_the_rights_that_a_value_grants(release: Installation) -> None:
    """A real request gives an Event on the pod's Job, and a dry run gives none."""
    cluster = release.cluster
    release.helm("upgrade", RELEASE, CHART, REQUIRED, "--set=events.enabled=true")
    _restart(release)
    namespace = cluster.namespace("events-", labels={"podsettle.dev/policy": "opt-in"})
    await_that(lambda: is_called(cluster, namespace), "the namespace is covered")
    assert {each["sideEffects"] for each in release.webhooks().values()} == {"NoneOnDryRun"}

    def create(job: str, *, dry_run: bool = False) -> None:
        pod = simple_pod(f"{job}-{uuid.uuid4()}", namespace)
        # Without a command, podsettle cannot wrap the container.
        del pod["spec"]["initContainers"][0]["command"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-of-{job}"}
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        status, made, warnings = cluster.create_pod(pod, dry_run=dry_run)
        assert status == 201, made
        assert "NoCommand" in " ".join(warnings)

    def events() -> dict[str, tuple[str, int]]:
        found = release.get(f"/api/v1/namespaces/{namespace}/events")["items"]
        return {each["involvedObject"]["name"]: (each["reason"], each["count"]) for each in found}

    create("tried", dry_run=True)
    create("build")
    await_that(lambda: events() == {"build": ("NoCommand", 1)}, "the Event is written")
    # Another replica does not know of it.
    _restart(release)
    await_that(lambda: is_called(cluster, namespace), "the other replica is called")
    create("build")
    await_that(lambda: events() == {"build": ("NoCommand", 2)}, "it is counted")

    (rule,) = release.get(f"{RBAC}/clusterroles/{RELEASE}-events")["rules"]
    granted = {("", "events", verb) for verb in rule["verbs"]}
    of_account = [event for event in _events(release) if "objectRef" in event]
    used = {_right(event) for event in of_account if event["objectRef"]["resource"] == "events"}
    assert used == granted
    release.helm("upgrade", RELEASE, CHART, REQUIRED)
    _restart(release)


def _restart(release: Installation) -> None:
    release.stop_all(signal.SIGKILL)
    await_that(release.start().is_ready, "podsettle is ready")


@contextmanager
def private_registry(directory: Path, ca: trustme.CA) -> Iterator[tuple[str, str]]:
    """A registry that wants a password: an image in it, and what a pull secret for it holds."""
    directory.mkdir()
    with start_registry(directory, ca, authorize=basic, auth=htpasswd(directory)) as registry:
        registry.push("team/private", "1", made_image(directory, entrypoint=["/bin/app"]))
        config = docker_config({registry.host: (USER, PASSWORD)}).content
        yield f"{registry.host}/team/private:1", base64.b64encode(config).decode()


def test_pull_secrets_are_read_where_a_value_allows_it(
    release: Installation, tmp_path: Path
) -> None:
    """A private image is looked up there, and nowhere else; and no other right is there.

    Its registry has a private CA, which a value names, too.
    """
    cluster, ca = release.cluster, trustme.CA()
    bundle = {"metadata": {"name": "registry-ca"}, "data": {"ca.crt": ca.cert_pem.bytes().decode()}}
    cluster.create(f"{OWN}/configmaps", bundle)
    trusted = "--set=extraCA.configMap=registry-ca"
    release.helm("upgrade", RELEASE, CHART, REQUIRED, trusted)
    labels = {"podsettle.dev/policy": "private"}
    with private_registry(tmp_path / "registry", ca) as (image, secret):
        release.stop_all(signal.SIGKILL)
        replica = release.start()
        await_that(replica.is_ready, "podsettle trusts the registry")
        images = {"lookup": "Registry", "registries": [image.partition("/")[0]]}
        cluster.create(POLICIES, policy("private", imageConfig=images))
        ci, other = (cluster.namespace("private-", labels=labels) for _ in range(2))
        for namespace in (ci, other):
            made: Json = {
                "metadata": {"name": "registry"},
                "type": DOCKER_CONFIG_JSON,
                "data": {".dockerconfigjson": secret},
            }
            cluster.create(f"/api/v1/namespaces/{namespace}/secrets", made)

        def warning(namespace: str, *pull_secrets: str) -> str:
            """Return the warnings of podsettle: "" if the wrapper runs the image's entrypoint."""
            pod = simple_pod("pod", namespace, image=image)
            del pod["spec"]["initContainers"][0]["command"]
            pod["spec"]["imagePullSecrets"] = [{"name": name} for name in pull_secrets]
            status, created, warnings = cluster.create_pod(pod, dry_run=True)
            assert status == 201, created
            (*_, own) = created["spec"]["initContainers"]
            if not warnings:
                # Not covered yet, or wrapped.
                return "" if own.get("command", [""])[-1] == "/bin/app" else "nothing"
            return " ".join(warnings)

        def upgrade(*flags: str) -> None:
            release.helm("upgrade", RELEASE, CHART, REQUIRED, trusted, *flags)

        refused = "pull secret 'registry' may not be read by podsettle"
        for namespace in (ci, other):
            await_that(lambda n=namespace: refused in warning(n, "registry"), "it says so")  # type: ignore[misc]
        assert "service account 'default' may not be read by podsettle" in warning(ci)

        allow = "--set=imageConfig.pullSecrets=true"
        upgrade(allow, f"--set=imageConfig.pullSecretNamespaces={{{ci}}}")
        await_that(lambda: warning(ci, "registry") == "", "the private image is looked up")
        assert refused in warning(other, "registry")
        # Without credentials: a missing Secret is no problem here.
        await_that(lambda: "service account" not in warning(ci), "the account is read")
        assert "ImageConfigUnavailable" in warning(ci)
        assert _granted(release, ci) == {("secrets", "get"), ("serviceaccounts", "get")}
        assert _granted(release, other) == set()

        def read() -> set[tuple[str, str, str]]:
            return {
                _right(event)
                for event in _events(release)
                if event.get("objectRef", {}).get("namespace") == ci
                and event["objectRef"]["resource"] != "namespaces"
                and event["responseStatus"]["code"] == 200
            }

        await_that(lambda: len(read()) == 2, "the audit log has both")
        assert read() == {("", "secrets", "get"), ("", "serviceaccounts", "get")}

        upgrade(allow)
        await_that(lambda: warning(other, "registry") == "", "it is looked up everywhere")
        assert _granted(release, "kube-system") == _granted(release, ci)
        upgrade()
        await_that(lambda: _granted(release, ci) == set(), "the right is taken back")
        cluster.request("DELETE", f"{POLICIES}/private")
    release.helm("upgrade", RELEASE, CHART, REQUIRED)
    release.stop_all(signal.SIGKILL)
    replica = release.start()
    await_that(replica.is_ready, "podsettle is as it was")


def _granted(release: Installation, namespace: str) -> set[tuple[str, str]]:
    """Return what RBAC allows the account for Secrets and ServiceAccounts of others."""

    def may(resource: str, verb: str) -> bool:
        asked = {"namespace": namespace, "verb": verb, "resource": resource, "name": "any"}
        status, answer, _ = release.cluster.request(
            "POST",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": ACCOUNT, "resourceAttributes": asked},
            },
        )
        assert status == 201, answer
        return bool(answer["status"]["allowed"])

    verbs = ("get", "list", "watch", "create", "update", "patch", "delete")
    return {
        (resource, verb)
        for resource in ("secrets", "serviceaccounts")
        for verb in verbs
        if may(resource, verb)
    }


def test_deleted_webhook_configuration_is_not_recreated(release: Installation) -> None:
    cluster = release.cluster
    namespace = cluster.namespace("kill-", labels={"podsettle.dev/policy": "opt-in"})
    await_that(lambda: is_called(cluster, namespace), "the namespace is covered")
    release.shell(release.documented("operations.md", "Switch it off"))
    await_that(lambda: not is_called(cluster, namespace), "nobody is asked any more")
    (replica,) = release.replicas
    # What podsettle would write next, if it could, comes with a policy for every namespace.
    cluster.create(POLICIES, policy("wide", namespaceSelector={}))
    asked = replica.request("GET", "/readyz?verbose")
    await_that(
        lambda: "does not call podsettle" in replica.request("GET", "/readyz?verbose").text,
        f"podsettle sees that it is switched off: {asked.text}",
    )
    assert cluster.request("GET", CONFIGURATION).status == 404
    cluster.request("DELETE", f"{POLICIES}/wide")

    release.shell(release.documented("operations.md", "Switch it off", 1))
    await_that(lambda: is_called(cluster, namespace), "it is on again, caBundle and all")


def test_pods_created_while_podsettle_is_down_can_be_found_afterwards(
    release: Installation,
) -> None:
    cluster = release.cluster
    second = release.start()
    await_that(second.is_ready, "there are two replicas")
    namespace = cluster.namespace("outage-", labels={"podsettle.dev/policy": "opt-in"})
    await_that(lambda: is_called(cluster, namespace), "the namespace is covered")
    assert cluster.create_pod(simple_pod("before", namespace)).status == 201

    release.stop_all(signal.SIGKILL)
    assert cluster.create_pod(simple_pod("during", namespace)).status == 201
    (missed,) = _missed(release, namespace)
    assert missed.startswith(
        f"{namespace} Pod/during: missed: the pod is younger than policy opt-in"
    )
    settled = release.shell(release.documented("operations.md", "Find the settled pods"))
    assert f"{namespace} before opt-in/postInitSleep" in " ".join(settled.split())
    assert "during" not in settled

    replica = release.start()
    await_that(replica.is_ready, "podsettle is back")
    await_that(lambda: is_called(cluster, namespace), "and asked")
    assert cluster.create_pod(simple_pod("after", namespace)).status == 201
    assert _missed(release, namespace) == [missed]


def _missed(release: Installation, namespace: str) -> list[str]:
    """Return the lines of the documented command about one namespace."""
    command = release.documented("operations.md", "Find the pods that were missed")
    return [line for line in release.shell(command).splitlines() if line.startswith(namespace)]


def test_failure_policy_fail_does_not_block_podsettle_itself(release: Installation) -> None:
    """Without a replica, pods are refused, except those of podsettle and of the cluster."""
    cluster = release.cluster
    labels = {"podsettle.dev/policy": "opt-in"}
    namespace = cluster.namespace("fail-", labels=labels)
    await_that(lambda: is_called(cluster, namespace), "the namespace is covered")
    release.helm("upgrade", RELEASE, CHART, REQUIRED, *FAIL)
    cluster.create(POLICIES, policy("wide", namespaceSelector={}))
    await_that(
        lambda: release.webhooks().get(BY_SELECTOR, {}).get("failurePolicy") == "Fail",
        "the second webhook has it, too",
    )
    other = cluster.namespace("fail-other-")
    await_that(lambda: is_called(cluster, other), "what a policy selects is covered, too")
    admitted = cluster.create_pod(simple_pod("settled", other), dry_run=True).body
    settled = {"metadata": {"name": "settled", "namespace": other}, "spec": admitted["spec"]}
    settled["metadata"]["annotations"] = admitted["metadata"]["annotations"]
    assert "podsettle.dev/settled" in settled["metadata"]["annotations"]
    release.stop_all(signal.SIGKILL)

    def answer(pod: Json) -> tuple[int, str]:
        status, body, _ = cluster.create_pod(pod, dry_run=True)
        return status, body.get("message", "")

    await_that(lambda: answer(simple_pod("pod", namespace))[0] == 500, "pods are refused")
    message = answer(simple_pod("pod", namespace))[1]
    assert 'failed calling webhook "opt-in.podsettle.dev"' in message
    await_that(
        lambda: 'failed calling webhook "cluster' in answer(simple_pod("pod", other))[1],
        "those that a policy selects, too",
    )

    # The name excludes the namespace, whatever its labels.
    for excluded in (NAMESPACE, "kube-system", "kube-public"):
        cluster.namespace(excluded, labels=labels)
        assert answer(simple_pod("pod", excluded)) == (201, ""), excluded

    for switched_off in (labels, {}):
        off = cluster.namespace("off-", labels=switched_off | {"podsettle.dev/enabled": "false"})
        assert answer(simple_pod("pod", off)) == (201, "")

    # By the match conditions: asked about none of these.
    for left_alone in (mirror_pod(other), windows_pod(other), settled):
        assert answer(left_alone) == (201, ""), left_alone
    # Where there are none, about all.
    for asked_about in (mirror_pod(namespace), windows_pod(namespace)):
        assert answer(asked_about)[0] == 500, asked_about
    later = {"name": "added-later", "image": "i", "command": ["/other"]}
    for where, what in (
        ("initContainers", later),
        ("containers", later),
        ("volumes", {"name": "added-later", "emptyDir": {}}),
    ):
        changed = deepcopy(settled)
        changed["spec"][where].append(what)
        assert answer(changed)[0] == 500, f"what another webhook adds to {where} counts"
    changed = deepcopy(settled)
    changed["metadata"]["labels"] = {"added": "later"}
    assert answer(changed)[0] == 500, "a policy may select the label"
    changed = deepcopy(settled)
    changed["metadata"]["annotations"] = {"podsettle.dev/settled": "true"}
    assert answer(changed)[0] == 500, "a word is no size"
    linux = simple_pod("linux", other)
    linux["spec"]["os"] = {"name": "linux"}
    linux["metadata"]["annotations"] = {"unrelated": "x"}
    assert answer(linux)[0] == 500

    # The outage ends without manual help.
    replica = release.start()
    await_that(replica.is_ready, "podsettle is ready again")
    await_that(lambda: answer(simple_pod("pod", namespace))[0] == 201, "pods are created again")
    cluster.request("DELETE", f"{POLICIES}/wide")
    release.helm("upgrade", RELEASE, CHART, "--reset-values", REQUIRED)
