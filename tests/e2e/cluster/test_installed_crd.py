"""The comparison of a cluster's CRD with the one of this release."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.service_accounts import connected_as_an_account_with
from tests.support.waiting import eventually
from webhook.cluster.client import ApiServer
from webhook.cluster.installed_crd import InstalledCrd
from webhook.cluster.source import Check
from webhook.core.policy.crd_comparison import CrdDifference

PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/settlepolicies.podsettle.dev"
FIELD = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/description"


@pytest.fixture
async def crd(api: ApiServer) -> AsyncIterator[InstalledCrd]:
    found = InstalledCrd(api)
    async with found.running():
        await eventually(lambda: found.attempted)
        yield found


async def test_older_crd_is_a_note_with_the_missing_fields_and_the_command(
    own_cluster: KubeCluster, crd: InstalledCrd
) -> None:
    calls: list[None] = []
    crd.observers.append(lambda: calls.append(None))
    assert crd.check() == Check("crd", True)
    assert crd.difference == CrdDifference()
    spec = own_cluster.request("GET", PATH).body["spec"]
    older = own_cluster.request("PATCH", PATH, [{"op": "remove", "path": FIELD}])
    assert older.status == 200, older.body
    await eventually(lambda: crd.difference == CrdDifference(("spec.description",)))
    note = crd.check().note
    assert note.startswith(
        "CustomResourceDefinition settlepolicies.podsettle.dev is older than podsettle and lacks "
        "spec.description. "
    )
    assert note.endswith("kubectl apply --server-side --force-conflicts -f charts/podsettle/crds")
    assert crd.check().ready, "an older CRD must not make a replica unready"
    own_cluster.request("PATCH", PATH, {"metadata": {"labels": {"touched": "yes"}}})
    own_cluster.request("PATCH", PATH, {"spec": spec})
    await eventually(lambda: crd.check() == Check("crd", True))
    assert calls


async def test_missing_right_to_read_the_crd_is_a_note(
    own_cluster: KubeCluster, tmp_path: Path
) -> None:
    namespace = own_cluster.namespace("crd-")
    async with connected_as_an_account_with(own_cluster, namespace, [], tmp_path) as server:
        found = InstalledCrd(server)
        assert not found.attempted
        async with found.running():
            await eventually(lambda: found.attempted)
            assert found.difference is None
            assert found.check().ready
            assert "forbidden" in found.check().note
