"""Whether the CRD of a real cluster is older than podsettle, and that every replica says so."""

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
        await eventually(lambda: found.known)
        yield found


async def test_an_old_one_is_named_with_what_it_lacks_and_what_to_do(
    own_cluster: KubeCluster, crd: InstalledCrd, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[None] = []
    crd.observers.append(lambda: told.append(None))
    assert crd.check() == Check("crd", True)
    assert crd.difference == CrdDifference()
    whole = own_cluster.request("GET", PATH).body["spec"]
    older = own_cluster.request("PATCH", PATH, [{"op": "remove", "path": FIELD}])
    assert older.status == 200, older.body
    await eventually(lambda: crd.difference == CrdDifference(("spec.description",)))
    note = crd.check().note
    assert note.startswith(
        "CustomResourceDefinition settlepolicies.podsettle.dev is older than podsettle and lacks "
        "spec.description. "
    )
    assert note.endswith("kubectl apply --server-side --force-conflicts -f charts/podsettle/crds")
    assert crd.check().ready, "it must not take the webhook away"
    own_cluster.request("PATCH", PATH, {"metadata": {"labels": {"touched": "yes"}}})
    own_cluster.request("PATCH", PATH, {"spec": whole})
    await eventually(lambda: crd.check() == Check("crd", True))
    assert [each.levelname for each in caplog.records if note in each.message] == ["WARNING"]
    assert told


async def test_without_the_right_to_read_it_that_is_a_note(
    own_cluster: KubeCluster, tmp_path: Path
) -> None:
    namespace = own_cluster.namespace("crd-")
    async with connected_as_an_account_with(own_cluster, namespace, [], tmp_path) as server:
        found = InstalledCrd(server)
        assert not found.known
        async with found.running():
            await eventually(lambda: found.known)
            assert found.difference is None
            assert found.check().ready
            assert "forbidden" in found.check().note
