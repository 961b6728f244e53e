"""The cluster's DNS: it answers for the names of Services, and for no others."""

from __future__ import annotations

from contextlib import AbstractContextManager

import httpx

from tests.support.kube.cluster import KubeCluster
from tests.support.name_server import NO_SUCH_NAME, Query, answering

_SUFFIX = ".svc.cluster.local"


def serving_names(cluster: KubeCluster, address: str) -> AbstractContextManager[None]:
    """Answer queries until the block ends."""

    def answer(query: Query) -> bytes | None:
        try:
            found = _service_address(cluster, query.name.lower())
        except httpx.TransportError:
            return None  # The client asks again.
        return query.answer(found) if found else query.answer(code=NO_SUCH_NAME)

    return answering(address, answer)


def _service_address(cluster: KubeCluster, name: str) -> str | None:
    service, _, namespace = name.removesuffix(_SUFFIX).partition(".")
    if not name.endswith(_SUFFIX) or not service or not namespace or "." in namespace:
        return None
    answer = cluster.request("GET", f"/api/v1/namespaces/{namespace}/services/{service}")
    address: str | None = answer.body.get("spec", {}).get("clusterIP")
    return None if address == "None" else address
