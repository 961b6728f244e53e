"""Tests of authentication in a real cluster: tokens of users, certificate of the API server."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import trustme

from tests.support.e2e_pods import is_called, simple_pod
from tests.support.helm_release import policy
from tests.support.kube.cluster import KubeCluster
from tests.support.policy_objects import POLICIES, install_crd
from tests.support.process import RunningServer, free_port, start_server
from tests.support.registered_webhook import registered
from tests.support.service_accounts import grant, signed_token
from tests.support.waiting import await_that

POLICY = policy("all", namespaceSelector={})


class Known(NamedTuple):
    """An API server that shows a client certificate at one address alone."""

    cluster: KubeCluster
    port: int
    """Where a webhook of 127.0.0.1 gets to see the certificate."""
    client_ca: Path
    """Of the certificate."""


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Known]:
    directory = tmp_path_factory.mktemp("api-server")
    ca, port = trustme.CA(), free_port()
    ca.cert_pem.write_to_path(directory / "client-ca.crt")
    leaf = ca.issue_cert("api-server.test")
    leaf.private_key_and_cert_chain_pem.write_to_path(directory / "client.pem")
    client = {f"client-{kind}": str(directory / "client.pem") for kind in ("certificate", "key")}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "users": [{"name": f"127.0.0.1:{port}", "user": client}],
    }
    (directory / "webhooks.kubeconfig").write_text(json.dumps(kubeconfig))
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(directory / "webhooks.kubeconfig"),
    }
    plugin = {"name": "MutatingAdmissionWebhook", "configuration": configuration}
    admission = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [plugin],
    }
    (directory / "admission.json").write_text(json.dumps(admission))
    with KubeCluster.start(
        f"--admission-control-config-file={directory / 'admission.json'}"
    ) as cluster:
        install_crd(cluster)
        cluster.create(POLICIES, POLICY)
        yield Known(cluster, port, directory / "client-ca.crt")


# Tokens


@pytest.fixture(scope="module")
def server(known: Known, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A podsettle that listens on an address other than loopback, as in a cluster."""
    certs = tmp_path_factory.mktemp("certs")
    anywhere = ("--host", "0.0.0.0")
    with start_server(None, certs, *anywhere, kubeconfig=known.cluster.kubeconfig) as found:
        await_that(
            lambda: preview(found, known.cluster.token).status_code == 200, "previews are made"
        )
        yield found


@pytest.fixture(scope="module")
def namespace(known: Known) -> str:
    """A namespace whose accounts may call /preview."""
    accounts = ("default", "passing")
    name = known.cluster.namespace("asking-", service_accounts=accounts)
    # The rule is that of docs/http.md.
    rule = {"nonResourceURLs": ["/preview"], "verbs": ["post"]}
    for account in accounts:
        grant(known.cluster, f"{name}:{account}", [rule])
    return name


def preview(server: RunningServer, token: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    with server.client() as client:
        return client.post("/preview", json=simple_pod("p"), headers=headers)


def resigned(cluster: KubeCluster, token: str, **claims: Any) -> str:
    """Return the token with other claims, signed with the cluster's key for ServiceAccounts."""
    said = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    return signed_token(cluster, said | claims)


def test_a_token_for_another_audience_is_refused(
    known: Known, server: RunningServer, namespace: str
) -> None:
    token = known.cluster.token_for("default", namespace, audiences=["vault"])
    answer = preview(server, token)
    assert answer.status_code == 401
    assert "audience" in answer.json()["detail"]


def test_an_expired_token_is_refused(known: Known, server: RunningServer, namespace: str) -> None:
    token = known.cluster.token_for("default", namespace)
    now = int(time.time())
    old = {"iat": now - 7200, "nbf": now - 7200, "exp": now - 3600}
    answer = preview(server, resigned(known.cluster, token, **old))
    assert answer.status_code == 401
    assert "expired" in answer.json()["detail"]
    # The refusal is due to the age: an unexpired token with this signature is valid.
    young = old | {"exp": now + 3600}
    assert preview(server, resigned(known.cluster, token, **young)).status_code == 200


def test_token_of_a_deleted_account_is_refused(
    known: Known, server: RunningServer, namespace: str
) -> None:
    token = known.cluster.token_for("passing", namespace)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/passing"
    assert known.cluster.request("DELETE", path).status == 200
    await_that(lambda: preview(server, token).status_code == 401, "the account is gone")


# Reviews


@contextmanager
def demanding(known: Known, certs: Path, port: int) -> Iterator[RunningServer]:
    """A registered podsettle that requires the client certificate of the API server."""
    with (
        start_server(
            None,
            certs,
            *("--linger-image", "registry.example/linger:1"),
            *("--client-ca", str(known.client_ca)),
            kubeconfig=known.cluster.kubeconfig,
            port=port,
        ) as server,
        registered(known.cluster, "closed", f"{server.url}/mutate", server.ca.read_bytes()),
    ):
        yield server


def test_api_server_with_a_client_certificate_may_call_mutate(known: Known, tmp_path: Path) -> None:
    with demanding(known, tmp_path, known.port) as server:
        await_that(lambda: is_called(known.cluster), "the API server calls podsettle")
        with server.client() as stranger:
            assert stranger.post("/mutate", json={}).status_code == 403
            assert stranger.get("/readyz").status_code == 200


def test_api_server_without_a_client_certificate_is_refused_with_the_cause(
    known: Known, tmp_path: Path
) -> None:
    pod = simple_pod("p")
    with demanding(known, tmp_path, free_port()) as server, server.client() as client:
        # The API server may still call the server of another test, which has ended.
        await_that(
            lambda: (
                "needs a client certificate"
                in known.cluster.create_pod(pod, dry_run=True).body.get("message", "")
            ),
            "the API server calls podsettle, which refuses it",
        )
        assert known.cluster.create_pod(pod, dry_run=True).status == 500
        assert 'podsettle_requests_refused_total{status="403"}' in client.get("/metrics").text
