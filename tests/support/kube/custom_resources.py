"""CRDs on a real API server."""

from __future__ import annotations

from tests.support.kube.cluster import Json, KubeCluster
from tests.support.waiting import await_that

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def create_crd(cluster: KubeCluster, crd: Json) -> None:
    """Create a CRD, and wait until each client can use its kind."""
    cluster.create(DEFINITIONS, crd)
    await_crd(cluster, crd["metadata"]["name"])


def await_crd(cluster: KubeCluster, name: str) -> None:
    """Wait until a CRD is established, its kind is served, and discovery lists it.

    The API server serves a kind before it is established, and lists it after that. kubectl and Helm
    fail if discovery does not list a kind.
    """
    await_that(
        lambda: condition_of_crd(cluster, name, "Established") == "True", f"{name} is served"
    )
    spec = cluster.request("GET", f"{DEFINITIONS}/{name}").body["spec"]
    group, plural = spec["group"], spec["names"]["plural"]
    (version,) = (each["name"] for each in spec["versions"] if each["storage"])
    path = f"/apis/{group}/{version}"
    await_that(
        lambda: cluster.request("GET", f"{path}/{plural}").status == 200, f"{name} is served"
    )
    await_that(lambda: plural in _listed(cluster, path), f"discovery lists {name}")
    await_that(lambda: plural in _aggregated(cluster, group), f"discovery lists {name}")


def condition_of_crd(cluster: KubeCluster, name: str, kind: str) -> str | None:
    """Return the status of a condition, or None if the API server has not set it."""
    found = cluster.request("GET", f"{DEFINITIONS}/{name}").body.get("status", {})
    statuses = {each["type"]: each["status"] for each in found.get("conditions") or ()}
    return statuses.get(kind)


def _listed(cluster: KubeCluster, path: str) -> set[str]:
    """Return the resources of a version of a group, as older clients find them."""
    return {each["name"] for each in cluster.request("GET", path).body.get("resources", ())}


def _aggregated(cluster: KubeCluster, group: str) -> set[str]:
    """Return the resources of a group, as kubectl finds them."""
    found = cluster.request("GET", "/apis", headers={"Accept": _AGGREGATED}).body
    return {
        resource["resource"]
        for each in found.get("items", ())
        if each["metadata"]["name"] == group
        for version in each.get("versions", ())
        for resource in version.get("resources", ())
    }
