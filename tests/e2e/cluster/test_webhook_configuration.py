"""The reconciliation of the webhook configuration on a real API server."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from tests.support.factories import policy_document
from tests.support.kube.cluster import KubeCluster
from tests.support.policy_objects import POLICIES
from tests.support.waiting import eventually
from tests.support.webhook_configuration import PATH, as_the_chart_writes_it, overwrite
from webhook.cluster.client import ApiServer
from webhook.cluster.kube_source import KubernetesSource
from webhook.cluster.watch import WatchLimits
from webhook.cluster.webhook_configuration import RegisteredWebhook, WebhookConfiguration
from webhook.core.policy.webhook_selectors import MAX_WEBHOOKS, WebhookSelectors
from webhook.tls.issuing import issue_ca

CA, OTHER_CA = (issue_ca(name, timedelta(days=1)).certificate_pem for name in ("one", "other"))


class Inputs:
    """The inputs that the webhook configuration follows, and the number of their checks."""

    bundle: bytes | None = CA
    may_write = True
    checks = 0

    def read_may_write(self) -> bool:
        self.checks += 1
        return self.may_write


@pytest.fixture
def inputs() -> Inputs:
    return Inputs()


@pytest.fixture
async def configuration(
    own_cluster: KubeCluster, source: KubernetesSource, api: ApiServer, inputs: Inputs
) -> AsyncIterator[WebhookConfiguration]:
    own_cluster.create(PATH, as_the_chart_writes_it())
    found = WebhookConfiguration(
        api,
        "podsettle",
        selectors=lambda: source.webhook_selectors,
        bundle=lambda: inputs.bundle,
        may_write=inputs.read_may_write,
    )
    source.observers.append(found.request_sync)
    async with found.running():
        await eventually(lambda: found.synced)
        yield found


def webhooks(cluster: KubeCluster) -> dict[str, Any]:
    found = cluster.request("GET", f"{PATH}/podsettle").body["webhooks"]
    return {webhook["name"]: webhook for webhook in found}


def bundles(cluster: KubeCluster) -> list[bytes]:
    return [
        base64.b64decode(webhook["clientConfig"].get("caBundle", ""))
        for webhook in webhooks(cluster).values()
    ]


async def test_bundle_is_written_replaced_and_restored(
    own_cluster: KubeCluster, configuration: WebhookConfiguration, inputs: Inputs
) -> None:
    await eventually(lambda: bundles(own_cluster) == [CA])
    expected = (RegisteredWebhook("hook.settle.svc", CA),)
    await eventually(lambda: configuration.webhooks == expected)
    inputs.bundle = OTHER_CA + CA
    await eventually(lambda: bundles(own_cluster) == [OTHER_CA + CA])
    overwrite(own_cluster, as_the_chart_writes_it())
    await eventually(lambda: bundles(own_cluster) == [OTHER_CA + CA])
    assert not configuration.problem


async def test_cluster_webhook_exists_while_a_policy_needs_it(
    own_cluster: KubeCluster, configuration: WebhookConfiguration
) -> None:
    await eventually(lambda: bundles(own_cluster) == [CA])
    assert webhooks(own_cluster).keys() == {"opt-in.podsettle.dev"}
    own_cluster.create(POLICIES, policy_document("everywhere"))
    await eventually(lambda: "cluster.podsettle.dev" in webhooks(own_cluster))
    added = webhooks(own_cluster)["cluster.podsettle.dev"]
    assert added["failurePolicy"] == "Ignore"
    assert added["timeoutSeconds"] == 2
    assert bundles(own_cluster) == [CA, CA]
    # An operator's change of the opt-in webhook applies to both webhooks.
    changed = as_the_chart_writes_it()
    changed["webhooks"][0]["timeoutSeconds"] = 3
    changed["webhooks"][0] |= {"clientConfig": added["clientConfig"]}
    overwrite(own_cluster, changed)
    await eventually(
        lambda: [w["timeoutSeconds"] for w in webhooks(own_cluster).values()] == [3, 3]
    )
    own_cluster.request("DELETE", f"{POLICIES}/everywhere")
    await eventually(lambda: webhooks(own_cluster).keys() == {"opt-in.podsettle.dev"})
    assert bundles(own_cluster) == [CA]
    assert not configuration.problem


async def test_match_conditions_of_an_earlier_chart_are_not_duplicated(
    own_cluster: KubeCluster, configuration: WebhookConfiguration
) -> None:
    """The API server rejects a webhook with two conditions of the same name."""

    def names(webhook: str = "cluster.podsettle.dev") -> list[str]:
        found = webhooks(own_cluster).get(webhook, {})
        return [each["name"] for each in found.get("matchConditions", ())]

    await eventually(lambda: bundles(own_cluster) == [CA])
    own = ["not-mirror", "not-windows", "not-settled", "not-protected"]
    own_cluster.create(POLICIES, policy_document("everywhere"))
    await eventually(lambda: "cluster.podsettle.dev" in webhooks(own_cluster))
    assert names() == own
    # An earlier chart had another order. One condition belongs to the operator.
    earlier = [
        {"name": name, "expression": "true"} for name in ("not-ours", "not-settled", "not-mirror")
    ]
    changed = as_the_chart_writes_it()
    changed["webhooks"][0]["matchConditions"] = earlier
    overwrite(own_cluster, changed)
    # The first patch after it can still come from the state before.
    await eventually(lambda: names() == [*own, "not-ours"])
    # The second webhook, as podsettle created it at that time.
    changed["webhooks"].append(webhooks(own_cluster)["cluster.podsettle.dev"])
    changed["webhooks"][1]["matchConditions"] = [
        *earlier,
        {"name": "not-protected", "expression": "true"},
    ]
    overwrite(own_cluster, changed)
    await eventually(lambda: names() == [*own, "not-ours"])
    # The upgrade removes the conditions.
    change = [{"op": "remove", "path": "/webhooks/0/matchConditions"}]
    own_cluster.request("PATCH", f"{PATH}/podsettle", change)
    await eventually(lambda: names() == own)
    assert not names("opt-in.podsettle.dev")
    assert not configuration.problem


def required_labels(of: list[Any] | dict[str, Any]) -> dict[str, set[tuple[str, ...]]]:
    """Return the labels that each of podsettle's webhooks requires, without the defaults."""
    each = of.values() if isinstance(of, dict) else of
    return {
        webhook["name"].removesuffix("cluster.podsettle.dev"): {
            (expression["key"], *expression.get("values", ()))
            for expression in webhook["namespaceSelector"].get("matchExpressions", ())
            if not expression["key"].startswith(("podsettle.dev/", "kubernetes.io/"))
        }
        for webhook in each
        if webhook["name"].endswith("cluster.podsettle.dev")
    }


def selected(cluster: KubeCluster) -> dict[str, set[tuple[str, ...]]]:
    return required_labels(webhooks(cluster))


def of_team(name: str) -> dict[str, Any]:
    return {"matchLabels": {"team": name}}


async def test_selectors_widen_and_narrow_with_the_policies(
    own_cluster: KubeCluster, configuration: WebhookConfiguration
) -> None:
    own_cluster.create(POLICIES, policy_document("narrow", namespaceSelector=of_team("a")))
    await eventually(lambda: selected(own_cluster) == {"": {("team", "a")}})
    # The policy now covers every namespace. No part of the old selector may remain.
    change: dict[str, Any] = {"spec": {"namespaceSelector": {"matchLabels": None}}}
    assert own_cluster.request("PATCH", f"{POLICIES}/narrow", change).status == 200
    await eventually(lambda: selected(own_cluster) == {"": set()})
    change = {"spec": {"namespaceSelector": of_team("a")}}
    own_cluster.request("PATCH", f"{POLICIES}/narrow", change)
    await eventually(lambda: selected(own_cluster) == {"": {("team", "a")}})
    pods = {"podSelector": {"matchLabels": {"app": "x"}}}
    own_cluster.create(POLICIES, policy_document("other", namespaceSelector=of_team("b"), **pods))
    both = {"": {("team", "a")}, "other.": {("team", "b")}}
    await eventually(lambda: selected(own_cluster) == both)
    found = webhooks(own_cluster)
    assert found["cluster.podsettle.dev"]["objectSelector"] == {}
    assert found["other.cluster.podsettle.dev"]["objectSelector"] == {
        "matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]
    }
    # No part of the pod selector may remain either.
    change = {"spec": {"podSelector": None}}
    assert own_cluster.request("PATCH", f"{POLICIES}/other", change).status == 200
    await eventually(
        lambda: webhooks(own_cluster)["other.cluster.podsettle.dev"]["objectSelector"] == {}
    )
    own_cluster.request("DELETE", f"{POLICIES}/narrow")
    await eventually(lambda: selected(own_cluster) == {"": {("team", "b")}})
    assert not configuration.problem


async def versions(api: ApiServer, since: str, until: str) -> list[list[Any]]:
    """Return the webhooks of each version after `since`, up to `until`."""
    found: list[list[Any]] = []
    path = f"{PATH}?watch=1&resourceVersion={since}&fieldSelector=metadata.name%3Dpodsettle"
    async with api.watch(path, "application/json", 30, WatchLimits()) as lines:
        async for line in lines:
            seen = json.loads(line)["object"]
            found.append(seen["webhooks"])
            if seen["metadata"]["resourceVersion"] == until:
                break
    return found


def version(cluster: KubeCluster) -> str:
    found: str = cluster.request("GET", f"{PATH}/podsettle").body["metadata"]["resourceVersion"]
    return found


async def test_every_intermediate_version_selects_the_covered_pods(
    own_cluster: KubeCluster,
    configuration: WebhookConfiguration,
    api: ApiServer,
    source: KubernetesSource,
) -> None:
    """A webhook gets another name, then merges with others above the limit, and back."""
    names = [f"p{number:02}" for number in range(MAX_WEBHOOKS)]
    own_cluster.create(POLICIES, policy_document("b", namespaceSelector=of_team("b")))
    await eventually(lambda: selected(own_cluster) == {"": {("team", "b")}})
    before = version(own_cluster)
    own_cluster.create(POLICIES, policy_document("a", namespaceSelector=of_team("a")))
    await eventually(lambda: selected(own_cluster) == {"": {("team", "a")}, "b.": {("team", "b")}})
    for name in names:
        own_cluster.create(POLICIES, policy_document(name, namespaceSelector=of_team(name)))
    await eventually(lambda: selected(own_cluster) == {"": set()})
    await eventually(lambda: len(source.policies_in_force) == len(names) + 2)
    assert "more than 20" in source.webhook_selectors.merged_because
    for name in names:
        own_cluster.request("DELETE", f"{POLICIES}/{name}")
    await eventually(lambda: selected(own_cluster) == {"": {("team", "a")}, "b.": {("team", "b")}})
    own_cluster.request("DELETE", f"{POLICIES}/a")
    await eventually(lambda: selected(own_cluster) == {"": {("team", "b")}})
    for each in await versions(api, before, version(own_cluster)):
        selectors = required_labels(each).values()
        assert set() in selectors or {("team", "b")} in selectors, selectors
        assert 1 <= len(selectors) <= 2 * MAX_WEBHOOKS
    assert not configuration.problem


async def test_merge_of_all_webhooks_is_logged_once(
    own_cluster: KubeCluster, configuration: WebhookConfiguration, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"p{number:02}" for number in range(MAX_WEBHOOKS + 1)]
    for name in names:
        own_cluster.create(POLICIES, policy_document(name, namespaceSelector=of_team(name)))
    await eventually(lambda: selected(own_cluster) == {"": set()})
    own_cluster.create(POLICIES, policy_document("more", namespaceSelector=of_team("more")))
    own_cluster.request("PATCH", f"{PATH}/podsettle", {"webhooks": []})
    overwrite(own_cluster, as_the_chart_writes_it())
    await eventually(lambda: selected(own_cluster) == {"": set()})
    merges = [each.message for each in caplog.records if "more than 20 pairs" in each.message]
    assert len(merges) == 1, merges
    # podsettle may have seen the configuration without webhooks, and then tries again later.
    await eventually(lambda: not configuration.problem)


async def test_client_that_keeps_reverting_is_reported_and_patched_rarely(
    own_cluster: KubeCluster, configuration: WebhookConfiguration
) -> None:
    await eventually(lambda: bundles(own_cluster) == [CA])

    def undo() -> bool:
        if bundles(own_cluster) == [CA]:
            overwrite(own_cluster, as_the_chart_writes_it())
        return "keeps reverting" in configuration.problem

    await eventually(undo)
    before = own_cluster.request("GET", f"{PATH}/podsettle").body["metadata"]["generation"]
    for _ in range(50):
        configuration.request_sync()
        await asyncio.sleep(0)
    after = own_cluster.request("GET", f"{PATH}/podsettle").body["metadata"]["generation"]
    assert after - before <= 1
    # Without further reverts, the next patch lasts and the problem ends.
    await eventually(lambda: bundles(own_cluster) == [CA] and not configuration.problem)


def inject(cluster: KubeCluster, bundle: bytes, *, applied: bool) -> None:
    """Write a bundle into every webhook, as cert-manager's ca-injector does.

    The injector uses an update. With its feature gate ServerSideApply it uses server-side apply,
    and then it also owns the webhook's entry in the list.
    """
    encoded = base64.b64encode(bundle).decode()
    if not applied:
        whole = cluster.request("GET", f"{PATH}/podsettle").body
        for webhook in whole["webhooks"]:
            webhook["clientConfig"]["caBundle"] = encoded
        overwrite(cluster, whole)
        return
    entries = [{"name": name, "clientConfig": {"caBundle": encoded}} for name in webhooks(cluster)]
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "podsettle"},
        "webhooks": entries,
    }
    query = "fieldManager=cainjector&force=true"
    headers = {"Content-Type": "application/apply-patch+yaml"}
    answer = cluster.request("PATCH", f"{PATH}/podsettle?{query}", body, headers)
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("applied", [False, True])
async def test_injected_bundle_stays_and_does_not_block_deletion_of_webhooks(
    own_cluster: KubeCluster, configuration: WebhookConfiguration, inputs: Inputs, applied: bool
) -> None:
    await eventually(lambda: bundles(own_cluster) == [CA])
    inputs.bundle = None
    for name in ("a", "b"):
        own_cluster.create(POLICIES, policy_document(name, namespaceSelector=of_team(name)))
    await eventually(lambda: len(webhooks(own_cluster)) == 3)
    inject(own_cluster, OTHER_CA, applied=applied)
    await eventually(lambda: bundles(own_cluster) == [OTHER_CA] * 3)
    own_cluster.request("DELETE", f"{POLICIES}/a")
    await eventually(lambda: selected(own_cluster) == {"": {("team", "b")}})
    own_cluster.request("DELETE", f"{POLICIES}/b")
    await eventually(lambda: webhooks(own_cluster).keys() == {"opt-in.podsettle.dev"})
    assert bundles(own_cluster) == [OTHER_CA]
    assert not configuration.problem


async def test_nothing_is_written_without_the_lease(
    own_cluster: KubeCluster, configuration: WebhookConfiguration, inputs: Inputs
) -> None:
    await eventually(lambda: bundles(own_cluster) == [CA])
    inputs.may_write = False
    inputs.bundle = OTHER_CA
    own_cluster.create(POLICIES, policy_document("everywhere"))
    own_cluster.request("DELETE", f"{POLICIES}/everywhere")
    before = inputs.checks
    configuration.request_sync()
    await eventually(lambda: inputs.checks > before)
    assert bundles(own_cluster) == [CA]


async def test_configuration_without_the_opt_in_webhook_is_a_problem(
    own_cluster: KubeCluster, configuration: WebhookConfiguration
) -> None:
    await eventually(lambda: bundles(own_cluster) == [CA])
    other = as_the_chart_writes_it()
    other["webhooks"][0]["name"] = "other.podsettle.dev"
    overwrite(own_cluster, other)
    await eventually(lambda: "opt-in.podsettle.dev" in configuration.problem)
    own_cluster.request("DELETE", f"{PATH}/podsettle")
    await eventually(lambda: not configuration.exists and not configuration.webhooks)


async def test_configuration_deleted_just_before_an_apply_is_not_recreated(
    own_cluster: KubeCluster, source: KubernetesSource, api: ApiServer
) -> None:
    """The account of the test may create the object. The leader has not seen the deletion yet.

    Another component registers the caBundle, so what podsettle applies would be a valid object.
    """
    own_cluster.create(POLICIES, policy_document("everywhere"))
    await eventually(lambda: source.webhook_selectors.by_webhook)
    own_cluster.create(PATH, as_the_chart_writes_it())
    reads = 0

    def selectors_after_deletion() -> WebhookSelectors:
        nonlocal reads
        # podsettle has found that the object exists, and reads the selectors to write it.
        if reads == 0:
            assert own_cluster.request("DELETE", f"{PATH}/podsettle").status == 200
        reads += 1
        return source.webhook_selectors

    found = WebhookConfiguration(
        api,
        "podsettle",
        selectors=selectors_after_deletion,
        bundle=lambda: None,
        may_write=lambda: True,
    )
    async with found.running():
        await eventually(lambda: reads > 0 and not found.exists)
        # The refused write is no lasting problem.
        await eventually(lambda: not found.problem)
        assert own_cluster.request("GET", f"{PATH}/podsettle").status == 404
