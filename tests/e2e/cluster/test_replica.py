"""Replicas on a real API server: start, readiness and change of the leader."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.waiting import eventually
from tests.support.webhook_configuration import PATH, as_the_chart_writes_it, overwrite
from webhook.cluster.client import ApiServer
from webhook.cluster.replica import Controller
from webhook.tls.authority import Lifetimes
from webhook.tls.dynamic_source import StoredCertificates
from webhook.tls.issuing import issue_ca

CERTIFICATES = StoredCertificates("hook", "tls", Lifetimes(timedelta(hours=1), timedelta(days=1)))


@pytest.fixture
def installed(own_cluster: KubeCluster) -> str:
    """The namespace of an installation, with the objects that the chart creates."""
    namespace = own_cluster.namespace("settle-")
    lease = {"metadata": {"name": "lease"}}
    own_cluster.create(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", lease)
    own_cluster.create(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "tls"}})
    own_cluster.create(PATH, configuration(namespace))
    return namespace


def configuration(namespace: str) -> dict[str, Any]:
    made = as_the_chart_writes_it()
    made["webhooks"][0]["clientConfig"]["service"]["namespace"] = namespace
    return made


@asynccontextmanager
async def started(namespace: str, name: str = "podsettle") -> AsyncIterator[Controller]:
    replica = Controller(await ApiServer.connect(), namespace, "lease", name, CERTIFICATES)
    async with replica.running():
        yield replica


@pytest.fixture
async def _kubeconfig(own_cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(own_cluster.kubeconfig))


pytestmark = pytest.mark.usefixtures("_kubeconfig")


def unready(replica: Controller) -> dict[str, str]:
    return {check.name: check.note for check in replica.checks() if not check.ready}


def notes(replica: Controller) -> dict[str, str]:
    return {check.name: check.note for check in replica.checks() if check.note}


async def test_two_replicas_become_ready_with_one_certificate(installed: str) -> None:
    async with started(installed) as first:
        assert "registration" in unready(first)
        await eventually(lambda: not unready(first))
        assert first.elector.is_leader
        async with started(installed) as second:
            await eventually(lambda: not unready(second))
            assert second.certificates.expires == first.certificates.expires
            assert not second.elector.is_leader
            assert not notes(first)
            assert not notes(second)


async def test_second_replica_leads_after_the_first_leaves(
    own_cluster: KubeCluster, installed: str
) -> None:
    async with AsyncExitStack() as both:
        leaving = AsyncExitStack()
        first = await leaving.enter_async_context(started(installed))
        await eventually(lambda: not unready(first) and first.elector.is_leader)
        second = await both.enter_async_context(started(installed))
        await eventually(lambda: not unready(second))
        await leaving.aclose()
        await eventually(lambda: second.elector.is_leader)
        overwrite(own_cluster, configuration(installed))
        await eventually(
            lambda: second.webhook_configuration and second.webhook_configuration.webhooks[0].bundle
        )
        await eventually(lambda: not unready(second))


async def test_replica_is_unready_while_the_api_server_trusts_another_ca(
    own_cluster: KubeCluster, installed: str
) -> None:
    async with started(installed) as replica:
        await eventually(lambda: not unready(replica))
        other = issue_ca("another", timedelta(days=1)).certificate_pem
        changed = configuration(installed)
        changed["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(other).decode()
        # Another holder of the Lease, so that the replica does not restore its CA at once.
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{installed}/leases/lease"
        held = {"holderIdentity": "another", "leaseDurationSeconds": 3600}
        own_cluster.request("PATCH", lease, {"spec": held})
        await eventually(lambda: not replica.elector.is_leader)
        overwrite(own_cluster, changed)
        await eventually(lambda: "registration" in unready(replica))
        assert "unable to get local issuer certificate" in unready(replica)["registration"]
        own_cluster.request("PATCH", lease, {"spec": {"holderIdentity": ""}})
        await eventually(lambda: not unready(replica))


async def test_problem_of_the_registration_names_the_webhook_configuration(
    own_cluster: KubeCluster, installed: str
) -> None:
    changed = configuration(installed)
    changed["webhooks"][0]["name"] = "another.podsettle.dev"
    overwrite(own_cluster, changed)
    async with started(installed) as replica:
        await eventually(lambda: "has no webhook" in notes(replica).get("registration", ""))
        title = "MutatingWebhookConfiguration podsettle: has no webhook opt-in.podsettle.dev"
        assert title in notes(replica)["registration"]
    overwrite(own_cluster, configuration(installed))


async def test_missing_webhook_configuration_is_a_note_and_replica_is_ready(
    own_cluster: KubeCluster, installed: str
) -> None:
    own_cluster.request("DELETE", f"{PATH}/podsettle")
    async with started(installed) as replica:
        await eventually(lambda: not unready(replica))
        assert notes(replica)["registration"] == (
            "MutatingWebhookConfiguration podsettle does not exist: "
            "the API server does not call podsettle"
        )
    own_cluster.create(PATH, configuration(installed))
