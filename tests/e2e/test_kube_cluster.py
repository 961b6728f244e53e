"""Tests of the cluster that other tests use: its admission plugins and tokens are real."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
import trustme

from tests.support.kube.cluster import Json, KubeCluster
from tests.support.kube.fixtures import load_pods, prepare_for_fixture_pods
from tests.support.kube.server import ServerError
from tests.support.paths import ROOT
from tests.support.waiting import TIMEOUT_SECONDS, await_that
from tools.kube_versions import MODULES, chosen, releases, server_minor

CONTAINER: Json = {"name": "main", "image": "registry.example/main:1"}
FIXTURES = load_pods()


def pod(namespace: str, name: str = "pod", **container: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [CONTAINER | container]},
    }


@pytest.fixture(scope="module")
def prepared(cluster: KubeCluster) -> KubeCluster:
    prepare_for_fixture_pods(cluster)
    return cluster


def test_version_endpoint_reports_the_built_release(cluster: KubeCluster) -> None:
    version = cluster.request("GET", "/version").body
    release = releases(MODULES[chosen()])["kubernetes"]
    assert version["gitVersion"] == f"v{release}"
    assert (version["major"], version["minor"]) == ("1", str(server_minor()))
    said = cluster.kubectl("version", "--output=json")
    assert json.loads(said.stdout)["serverVersion"]["gitVersion"] == f"v{release}", said.stderr


@pytest.mark.parametrize("name", FIXTURES)
def test_every_fixture_pod_is_created(prepared: KubeCluster, name: str) -> None:
    status, created, warnings = prepared.create_pod(FIXTURES[name])
    assert status == 201, created
    assert not [warning for warning in warnings if "unknown field" in warning]
    # Other modules create the same pods in this cluster.
    metadata = created["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    assert prepared.request("DELETE", path, {"gracePeriodSeconds": 0}).status == 200


def test_fixture_objects_can_be_created_twice(prepared: KubeCluster) -> None:
    prepare_for_fixture_pods(prepared)


def test_a_pod_of_an_absent_service_account_is_refused(cluster: KubeCluster) -> None:
    namespace = cluster.namespace("accounts-", service_accounts=())
    status, answer, _ = cluster.create_pod(pod(namespace))
    assert status == 403
    assert f"error looking up service account {namespace}/default" in answer["message"]


def test_a_pod_gets_the_token_of_its_account(cluster: KubeCluster) -> None:
    namespace = cluster.namespace("accounts-")
    spec = cluster.create_pod(pod(namespace)).body["spec"]
    assert spec["volumes"][0]["name"].startswith("kube-api-access-")


def test_a_namespace_that_exists_gets_labels(cluster: KubeCluster) -> None:
    name = cluster.namespace("labels-", labels={"a": "1"})
    assert cluster.namespace(name, labels={"b": "2"}, annotations={"c": "3"}) == name
    metadata = cluster.request("GET", f"/api/v1/namespaces/{name}").body["metadata"]
    assert metadata["labels"].items() >= {"a": "1", "b": "2"}.items()
    assert metadata["annotations"] == {"c": "3"}


def test_warnings_reach_the_client_and_kubectl(cluster: KubeCluster) -> None:
    namespace = cluster.namespace(
        "warnings-", labels={"pod-security.kubernetes.io/warn": "baseline"}
    )
    warned = pod(namespace, securityContext={"privileged": True})
    warned["spec"]["unheardOf"] = True
    status, _, warnings = cluster.create_pod(warned)
    assert status == 201
    assert warnings[0] == 'unknown field "spec.unheardOf"'
    assert 'violate PodSecurity "baseline:latest": privileged' in warnings[1]
    assert len(warnings) == 2

    del warned["spec"]["unheardOf"]
    warned["metadata"]["name"] = "by-kubectl"
    said = cluster.kubectl("create", "-f", "-", input=json.dumps(warned))
    assert said.stdout == "pod/by-kubectl created\n"
    assert said.stderr.startswith('Warning: would violate PodSecurity "baseline:latest"')


def test_a_quota_is_enforced(cluster: KubeCluster) -> None:
    namespace = cluster.namespace("quota-")
    cluster.quota(namespace, {"pods": "1", "limits.cpu": "100m"})
    status, answer, _ = cluster.create_pod(pod(namespace))
    assert status == 403
    assert "must specify limits.cpu" in answer["message"]
    limited: Json = {"resources": {"limits": {"cpu": "50m"}}}
    assert cluster.create_pod(pod(namespace, **limited)).status == 201
    status, answer, _ = cluster.create_pod(pod(namespace, "second", **limited))
    assert status == 403
    assert "exceeded quota: quota, requested: pods=1, used: pods=1" in answer["message"]


def test_exhausted_quota_rejects_a_pod(cluster: KubeCluster) -> None:
    namespace = cluster.namespace("quota-")
    cluster.quota(namespace, {"pods": "7"}, used={"pods": "7"})
    assert cluster.create_pod(pod(namespace)).status == 403


def test_pod_security_restricted_is_enforced(cluster: KubeCluster) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = cluster.namespace("restricted-", labels=labels)
    status, answer, _ = cluster.create_pod(pod(namespace))
    assert status == 403
    assert 'violates PodSecurity "restricted:latest"' in answer["message"]
    settled = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert cluster.create_pod(pod(namespace, securityContext=settled)).status == 201


def test_pod_with_a_missing_runtime_class_is_refused(cluster: KubeCluster) -> None:
    refused = pod(cluster.namespace("runtime-"))
    refused["spec"]["runtimeClassName"] = "nowhere"
    status, answer, _ = cluster.create_pod(refused)
    assert status == 403
    assert 'pod rejected: RuntimeClass "nowhere" not found' in answer["message"]


def test_a_dry_run_creates_nothing(cluster: KubeCluster) -> None:
    namespace = cluster.namespace("dry-")
    assert cluster.create_pod(pod(namespace), dry_run=True).status == 201
    assert cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods/pod").status == 404


def test_audit_log_holds_each_write(cluster: KubeCluster) -> None:
    namespace = cluster.namespace("audit-")
    cluster.create_pod(pod(namespace), headers={"Audit-ID": f"the-pod-in-{namespace}"})
    event = cluster.audit_event(f"the-pod-in-{namespace}")
    assert event["verb"] == "create"
    assert event["level"] == "Metadata"
    assert event["objectRef"].items() >= {"resource": "pods", "namespace": namespace}.items()
    assert "pod-security.kubernetes.io/enforce-policy" in event["annotations"]


def test_token_grants_the_rights_of_its_account(cluster: KubeCluster) -> None:
    namespace = cluster.namespace("tokens-")
    token = cluster.token_for("default", namespace)
    who = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    user = cluster.request("POST", who, {}, token=token).body["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{namespace}:default"
    assert cluster.create_pod(pod(namespace), token=token).status == 403
    elsewhere = cluster.token_for("default", namespace, audiences=["podsettle"])
    assert cluster.request("POST", who, {}, token=elsewhere).status == 401


class Webhook(BaseHTTPRequestHandler):
    """Allows every pod, with a warning and an audit annotation."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        review["response"] = {
            "uid": review["request"]["uid"],
            "allowed": True,
            "warnings": [f"called for {review['request']['namespace']}"],
            "auditAnnotations": {"reasons": "NotNeeded"},
        }
        answer = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Discard the message."""


@contextmanager
def webhook(host: str) -> Iterator[tuple[int, str]]:
    """A webhook on a loopback port; gives the port and its CA bundle."""
    ca = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert(host).configure_cert(context)
    with ThreadingHTTPServer(("127.0.0.1", 0), Webhook) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, base64.b64encode(ca.cert_pem.bytes()).decode()
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("by", ["url", "service"])
def test_api_server_calls_a_registered_webhook(cluster: KubeCluster, by: str) -> None:
    namespace = cluster.namespace("webhook-")
    host = f"hook.{namespace}.svc" if by == "service" else "127.0.0.1"
    with webhook(host) as (port, bundle):
        client: Json = {"caBundle": bundle, "url": f"https://127.0.0.1:{port}/mutate"}
        if by == "service":
            # The way to a port of this machine; the certificate is that of the Service's name.
            service = {"type": "ExternalName", "externalName": "localhost"}
            body = {"metadata": {"name": "hook"}, "spec": service}
            cluster.create(f"/api/v1/namespaces/{namespace}/services", body)
            reference = {"namespace": namespace, "name": "hook", "port": port, "path": "/mutate"}
            client = {"caBundle": bundle, "service": reference}
        hook = {
            "name": "hook.podsettle.test",
            "clientConfig": client,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                }
            ],
        }
        path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        cluster.create(path, {"metadata": {"name": namespace}, "webhooks": [hook]})
        try:
            await_webhook(cluster, namespace)
            cluster.create_pod(pod(namespace), headers={"Audit-ID": f"hooked-{namespace}"})
        finally:
            cluster.request("DELETE", f"{path}/{namespace}")
        annotations = cluster.audit_event(f"hooked-{namespace}")["annotations"]
        assert annotations["hook.podsettle.test/reasons"] == "NotNeeded"


def await_webhook(cluster: KubeCluster, namespace: str) -> None:
    warnings: list[str] = []

    def is_called() -> bool:
        status, answer, found = cluster.create_pod(pod(namespace), dry_run=True)
        # A failure to call it would be an error: failurePolicy is Fail. The API server may learn of
        # the Service after the webhook.
        assert status == 201 or 'service "hook" not found' in answer["message"], answer
        warnings[:] = found
        return bool(found)

    await_that(is_called, "the API server calls the webhook")
    assert warnings == [f"called for {namespace}"]


@pytest.mark.slow
def test_restarted_servers_keep_their_data() -> None:
    with KubeCluster.start() as own:
        namespace = own.namespace("kept")
        assert own.create_pod(pod(namespace)).status == 201
        own.restart_apiserver()
        path = f"/api/v1/namespaces/{namespace}/pods/pod"
        assert own.request("GET", path).status == 200
        own.stop_etcd()
        with pytest.raises(httpx.ReadTimeout):
            own.request("GET", path, timeout=0.2)
        own.start_etcd()
        assert own.request("GET", path).status == 200
        assert own.create_pod(pod(namespace, "second")).status == 201


def test_failed_start_shows_the_log() -> None:
    with (
        pytest.raises(ServerError, match="unknown flag: --no-such-flag"),
        KubeCluster.start("--no-such-flag"),
    ):
        pass


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it is Linux that kills them")
def test_a_killed_test_run_leaves_no_servers() -> None:
    script = """
from tests.support.kube.cluster import KubeCluster
with KubeCluster.start() as cluster:
    print(cluster.directory, *cluster.pids, flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout
        directory, *servers = run.stdout.readline().split()
        watched = [os.pidfd_open(int(server)) for server in servers]
        run.send_signal(signal.SIGKILL)
        for descriptor in watched:
            # Readable once the process is gone.
            assert select.select([descriptor], [], [], TIMEOUT_SECONDS)[0], (
                "a server outlived the run that started it"
            )
            os.close(descriptor)
    shutil.rmtree(directory)
