"""Paged lists of a real API server whose versions expire between two pages."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.service_accounts import kubeconfig_of_account
from tools.kube_versions import server_minor
from webhook.cluster.client import ApiServer
from webhook.core.pod import WireStruct
from webhook.inspect.findings import Looked
from webhook.inspect.object_readers import PagedReader, Resource
from webhook.inspect.objects import LiveMetadata

pytestmark = pytest.mark.slow

MANY = 600


class ConfigMap(WireStruct):
    metadata: LiveMetadata


CONFIG_MAPS = Resource("configmaps", "ConfigMap", ConfigMap)


@pytest.fixture(scope="module")
def paging_cluster() -> Iterator[KubeCluster]:
    """A cluster with more objects than a page has, in one namespace.

    From Kubernetes 1.34 on, an API server answers later pages from memory. Without this gate it
    reads etcd, as earlier ones do, and as a busy one does again.
    """
    from_etcd = ["--feature-gates=ListFromCacheSnapshot=false"] if server_minor() >= 34 else []
    with KubeCluster.start(*from_etcd) as cluster:
        cluster.namespace("many")
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda n: create(cluster, f"c-{n:03}"), range(MANY)))
        yield cluster


def create(cluster: KubeCluster, name: str) -> None:
    cluster.create("/api/v1/namespaces/many/configmaps", {"metadata": {"name": name}})


async def test_list_whose_version_expires_continues_without_a_duplicate(
    paging_cluster: KubeCluster,
) -> None:
    progress: list[tuple[str, int, int | None]] = []
    names: list[str] = []
    async with await ApiServer.connect(kubeconfig=str(paging_cluster.kubeconfig)) as server:
        reader = PagedReader(server, lambda *each: progress.append(each))
        async for each in reader.objects(CONFIG_MAPS, "many"):
            if not names:
                create(paging_cluster, "created-meanwhile")
                paging_cluster.compact_etcd()
            names.append(each.metadata.name)
    assert sorted(names) == sorted({*(f"c-{n:03}" for n in range(MANY)), "created-meanwhile"})
    # The clock of the API server: the header Date has no fraction of a second.
    assert reader.now.microsecond == 0
    assert reader.now.tzinfo is UTC
    assert reader.areas["configmaps"].looked is Looked.LOOKED_AT
    assert len(progress) > 1
    assert progress[-1] == ("configmaps", MANY + 1, MANY + 1)
    # The API server says how many objects are left, so a bar can have a length.
    assert progress[0][2] in range(MANY, MANY + 3)


async def test_list_that_is_refused_is_not_looked_at_and_names_the_right(
    paging_cluster: KubeCluster,
) -> None:
    kubeconfig = kubeconfig_of_account(paging_cluster, "many:default", paging_cluster.directory)
    async with await ApiServer.connect(kubeconfig=str(kubeconfig)) as server:
        reader = PagedReader(server)
        assert [each async for each in reader.objects(CONFIG_MAPS, "many")] == []
    area = reader.areas["configmaps"]
    assert area.looked is Looked.NOT_LOOKED_AT
    assert area.right == "list configmaps in namespace many"
