"""The status of policies on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from typing import Any

import pytest

from tests.support.factories import policy_document
from tests.support.kube.cluster import KubeCluster
from tests.support.policy_objects import POLICIES
from tests.support.waiting import await_that, eventually
from webhook.cluster.client import ApiServer
from webhook.cluster.installed_crd import InstalledCrd
from webhook.cluster.kube_source import KubernetesSource
from webhook.cluster.status_writer import StatusWriter


@pytest.fixture
async def writer(source: KubernetesSource, api: ApiServer) -> AsyncIterator[StatusWriter]:
    crd = InstalledCrd(api)
    found = StatusWriter(api, source, crd, "own", lambda: True, owns_webhooks=True)
    async with crd.running(), found.running():
        yield found


def conditions(cluster: KubeCluster, name: str) -> dict[str, tuple[str, str]]:
    status = cluster.request("GET", f"{POLICIES}/{name}").body.get("status", {})
    return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", ())}


def status(cluster: KubeCluster, name: str) -> Any:
    return cluster.request("GET", f"{POLICIES}/{name}").body.get("status", {})


async def test_status_follows_namespaces_runtime_classes_nodes_and_the_policy(
    own_cluster: KubeCluster, writer: StatusWriter
) -> None:
    remedies = {"skipSELinuxRelabel": {"runtimeClassName": "quick"}, "postInitSleep": {}}
    selector = {"matchLabels": {"team": "status"}}
    created = own_cluster.create(
        POLICIES, policy_document("described", namespaceSelector=selector, remedies=remedies)
    )
    assert created["metadata"]["generation"] == 1
    own_cluster.namespace("described-", labels={"team": "status"})
    await eventually(
        lambda: (
            conditions(own_cluster, "described")
            == {
                "Accepted": ("True", "Valid"),
                "RuntimeClassesFound": ("False", "RuntimeClassMissing"),
                "StillNeeded": ("Unknown", "NoNodes"),
                "WebhookScoped": ("True", "Selectors"),
                "CRDCurrent": ("True", "Current"),
            }
        )
    )
    await eventually(lambda: status(own_cluster, "described")["matchedNamespaces"] == 1)
    since = status(own_cluster, "described")["conditions"][0]["lastTransitionTime"]

    body = {"metadata": {"name": "quick"}, "handler": "quick"}
    own_cluster.create("/apis/node.k8s.io/v1/runtimeclasses", body)
    await eventually(
        lambda: conditions(own_cluster, "described")["RuntimeClassesFound"] == ("True", "Found")
    )
    own_cluster.create("/api/v1/nodes", {"metadata": {"name": "old"}})
    info = {"status": {"nodeInfo": {"containerRuntimeVersion": "cri-o://1.33.12"}}}
    own_cluster.request("PATCH", "/api/v1/nodes/old/status", info)
    affected = ("True", "NodesAreAffected")
    await eventually(lambda: conditions(own_cluster, "described")["StillNeeded"] == affected)
    own_cluster.request("PATCH", f"{POLICIES}/described", {"spec": {"priority": 5}})
    await eventually(lambda: status(own_cluster, "described")["observedGeneration"] == 2)
    assert status(own_cluster, "described")["conditions"][0]["lastTransitionTime"] == since
    assert not writer.problem


INVALID = policy_document("bad", remedies={"postInitSlep": {}})


@pytest.fixture
def unchecked(own_cluster: KubeCluster) -> Iterator[None]:
    """The CRD without its schema, so that it accepts invalid policies."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/settlepolicies.podsettle.dev"
    versions = own_cluster.request("GET", path).body["spec"]["versions"]
    loose = deepcopy(versions)
    properties = loose[0]["schema"]["openAPIV3Schema"]["properties"]
    properties["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    loose[0]["additionalPrinterColumns"] = []
    answer = own_cluster.request("PATCH", path, {"spec": {"versions": loose}})
    assert answer.status == 200, answer.body
    await_that(
        lambda: _is_accepted(own_cluster, INVALID), "the API server accepts invalid policies"
    )
    yield
    own_cluster.request("PATCH", path, {"spec": {"versions": versions}})


def _is_accepted(cluster: KubeCluster, body: dict[str, Any]) -> bool:
    """Return whether the API server accepts an object unchanged."""
    answer = cluster.request("POST", f"{POLICIES}?dryRun=All", body)
    return bool(answer.status == 201 and answer.body["spec"] == body["spec"])


@pytest.mark.usefixtures("unchecked")  # First, because an earlier watch would still prune fields.
async def test_status_reports_the_errors_of_an_invalid_policy(
    own_cluster: KubeCluster, source: KubernetesSource, writer: StatusWriter
) -> None:
    own_cluster.create(POLICIES, policy_document("good"))
    own_cluster.create(POLICIES, INVALID)
    await eventually(
        lambda: (
            conditions(own_cluster, "bad")
            == {"Accepted": ("False", "Invalid"), "CRDCurrent": ("True", "Current")}
        )
    )
    assert status(own_cluster, "bad")["conditions"][0]["message"] == (
        "Not in force: spec.remedies.postInitSlep: unknown key; did you mean postInitSleep?"
    )
    assert set(source.policies_in_force) == {"good"}
    await eventually(lambda: conditions(own_cluster, "good").get("Accepted") == ("True", "Valid"))
    own_cluster.request("PATCH", f"{POLICIES}/good", {"spec": {"priority": "high"}})
    await eventually(lambda: conditions(own_cluster, "good")["Accepted"] == ("False", "Invalid"))
    assert "stays in force" in status(own_cluster, "good")["conditions"][0]["message"]
    assert source.policies_in_force["good"].spec.priority == 0
    assert not writer.problem


async def test_unchanged_status_is_not_written_again(
    own_cluster: KubeCluster, source: KubernetesSource, writer: StatusWriter
) -> None:
    own_cluster.create(POLICIES, policy_document("unchanged"))
    await eventually(lambda: conditions(own_cluster, "unchanged"))
    name = own_cluster.namespace("more-")
    await eventually(lambda: source.view.namespace(name))
    await eventually(
        lambda: (
            status(own_cluster, "unchanged")["matchedNamespaces"] == _covered(source, "unchanged")
        )
    )
    # The writer handles the policies in the order in which they were created.
    own_cluster.create(POLICIES, policy_document("changed"))
    await eventually(lambda: conditions(own_cluster, "changed"))
    version = own_cluster.request("GET", f"{POLICIES}/unchanged").body["metadata"][
        "resourceVersion"
    ]
    own_cluster.request("PATCH", f"{POLICIES}/changed", {"spec": {"priority": 5}})
    await eventually(lambda: status(own_cluster, "changed")["observedGeneration"] == 2)
    after = own_cluster.request("GET", f"{POLICIES}/unchanged").body["metadata"]["resourceVersion"]
    assert after == version
    assert not writer.problem


def _covered(source: KubernetesSource, name: str) -> int:
    view = source.view
    found = [view.policies.coverage_for(ns, "own") for ns in view.namespaces.values()]
    return sum(any(p.name == name for p in coverage.policies) for coverage in found)
