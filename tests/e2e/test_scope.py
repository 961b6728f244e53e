"""Tests of which pods a real API server calls podsettle for, counted by its audit log."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.e2e_pods import is_called, simple_pod
from tests.support.helm import named
from tests.support.helm_release import (
    BY_SELECTOR,
    OPT_IN,
    POLICIES,
    RELEASE,
    WEBHOOK_TIMEOUT_SECONDS,
    Installation,
    policy,
    released,
)
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.other_webhook import start_other_webhook
from tests.support.registered_webhook import registered
from tests.support.waiting import await_that
from webhook.core.policy.webhook_selectors import MAX_WEBHOOKS


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with released(tmp_path_factory.mktemp("release")) as installation:
        yield installation


@contextmanager
def policies(release: Installation, *documents: Json) -> Iterator[None]:
    """Register policies while the block runs, then wait until their webhooks are removed."""
    cluster = release.cluster
    for document in documents:
        cluster.create(POLICIES, document)
    try:
        yield
    finally:
        for document in release.get(POLICIES)["items"]:
            cluster.request("DELETE", f"{POLICIES}/{document['metadata']['name']}")
    await_that(lambda: set(release.webhooks()) == {OPT_IN}, "podsettle's webhooks are gone")


def by_label(key: str, value: str = "yes") -> Json:
    return {"matchLabels": {key: value}}


def labelled(pod: Json, **labels: str) -> Json:
    pod["metadata"]["labels"] = labels
    return pod


def unchanged_pod(namespace: str) -> Json:
    """A pod to which no remedy applies: nothing marks it as settled."""
    pod = simple_pod("plain", namespace)
    del pod["spec"]["initContainers"]
    return pod


MUTATION = "mutation.webhook.admission.k8s.io/"
"""How the API server's annotations in its audit log begin, one for each call of a webhook."""


def created(cluster: KubeCluster, pod: Json) -> tuple[Json, dict[str, str]]:
    """Return a pod as it would be created, and what the audit log says of the way there."""
    identifier = str(uuid.uuid4())
    headers = {"Audit-ID": identifier}
    status, made, _ = cluster.create_pod(pod, dry_run=True, headers=headers)
    assert status == 201, made
    return made, cluster.audit_event(identifier)["annotations"]


def calls(audited: dict[str, str]) -> list[tuple[str, bool]]:
    """Return the webhooks that were called, in turn, and whether each changed the pod."""
    found = sorted(
        (key, json.loads(said)) for key, said in audited.items() if key.startswith(MUTATION)
    )
    return [(said["webhook"], said["mutated"]) for _, said in found]


def asked(cluster: KubeCluster, pod: Json) -> list[tuple[str, bool]]:
    """The webhooks that are called for a pod, and whether each changed it."""
    return calls(created(cluster, pod)[1])


def test_api_server_calls_the_webhook_only_for_selected_pods(release: Installation) -> None:
    cluster = release.cluster
    a, b, outside = (
        cluster.namespace("scope-", labels=labels)
        for labels in ({"team": "a"}, {"team": "b"}, {"team": "c"})
    )
    with policies(
        release,
        policy("first", namespaceSelector=by_label("team", "a")),
        policy(
            "second", namespaceSelector=by_label("team", "b"), podSelector=by_label("app", "job")
        ),
    ):
        second = f"second.{BY_SELECTOR}"
        await_that(lambda: is_called(cluster, a), "the first policy is in force")
        await_that(lambda: is_called(cluster, b, {"app": "job"}), "and so is the second")
        assert set(release.webhooks()) == {OPT_IN, BY_SELECTOR, second}
        assert asked(cluster, simple_pod("pod", a)) == [(BY_SELECTOR, True)]
        assert asked(cluster, labelled(simple_pod("pod", b), app="job")) == [(second, True)]
        # By its podSelector, and by no policy.
        assert asked(cluster, labelled(simple_pod("pod", b), app="web")) == []
        assert asked(cluster, simple_pod("pod", b)) == []
        assert asked(cluster, simple_pod("pod", outside)) == []
        assert asked(cluster, labelled(simple_pod("pod", outside), app="job")) == []


def test_pod_created_right_after_its_namespace_is_settled(release: Installation) -> None:
    cluster = release.cluster
    with policies(release, policy("everywhere", namespaceSelector={})):
        await_that(lambda: is_called(cluster, "default"), "the policy is in force")
        for _ in range(20):
            assert is_called(cluster, cluster.namespace("young-"))


def test_a_pod_that_two_webhooks_match_is_settled_by_the_first_of_them(
    release: Installation,
) -> None:
    cluster = release.cluster
    both = cluster.namespace("scope-", labels={"one": "yes", "two": "yes"})
    with policies(
        release,
        policy("one", namespaceSelector=by_label("one")),
        policy("two", namespaceSelector=by_label("two"), priority=1),
    ):
        second = f"two.{BY_SELECTOR}"
        await_that(lambda: second in release.webhooks(), "both are registered")
        await_that(
            lambda: len(asked(cluster, unchanged_pod(both))) == 2, "the API server knows both"
        )
        # By all policies: the second one has priority.
        pod, audited = created(cluster, simple_pod("pod", both))
        assert calls(audited) == [(BY_SELECTOR, True)]
        assert pod["metadata"]["annotations"]["podsettle.dev/applied"] == "two/postInitSleep"
        # Nothing says of such a pod that it was asked about.
        assert asked(cluster, unchanged_pod(both)) == [(BY_SELECTOR, False), (second, False)]


def test_labels_that_a_later_webhook_adds_do_not_count_for_a_pod_selector(
    release: Installation, tmp_path: Path
) -> None:
    """As the documentation says; an empty podSelector is the way around, and so is opting in."""
    cluster = release.cluster
    namespace = cluster.namespace("scope-", labels={"team": "late"})
    opted_in = cluster.namespace("scope-", labels={"podsettle.dev/policy": "narrow"})
    selected = {"namespaceSelector": by_label("team", "late")}
    with (
        start_other_webhook(tmp_path, None, labels={"app": "job"}) as (url, ca),
        registered(cluster, "z-later", url, ca),
    ):
        with policies(release, policy("narrow", podSelector=by_label("app", "job"), **selected)):
            await_that(
                lambda: is_called(cluster, namespace, {"app": "job"}), "the policy is in force"
            )
            pod, audited = created(cluster, simple_pod("pod", namespace))
            assert pod["metadata"]["labels"] == {"app": "job"}
            assert BY_SELECTOR not in dict(calls(audited))
            assert asked(cluster, simple_pod("pod", opted_in))[::2] == [
                (OPT_IN, False),
                (OPT_IN, True),
            ]
        with policies(release, policy("narrow", **selected)):
            await_that(lambda: is_called(cluster, namespace), "the policy is in force")
            assert (BY_SELECTOR, True) in asked(cluster, simple_pod("pod", namespace))


def condition(release: Installation, name: str) -> Json:
    status = release.get(f"{POLICIES}/{name}").get("status", {})
    found = [c for c in status.get("conditions", ()) if c["type"] == "WebhookScoped"]
    return found[0] if found else {}


def test_more_than_twenty_selectors_share_one_webhook_and_policies_report_it(
    release: Installation,
) -> None:
    cluster = release.cluster
    outside = cluster.namespace("scope-")
    many = [
        policy(f"p{number:02}", namespaceSelector=by_label("team", f"t{number}"))
        for number in range(MAX_WEBHOOKS)
    ]
    covered = cluster.namespace("scope-", labels={"team": f"t{MAX_WEBHOOKS - 1}"})
    with policies(release, *many, policy("opt-in")):
        await_that(lambda: is_called(cluster, covered), "the last policy is in force")
        found = release.webhooks()
        assert len(found) == 1 + MAX_WEBHOOKS
        # Shorter than the chart's default: a pod may have to wait for each of them.
        (by_default,) = named("MutatingWebhookConfiguration", RELEASE)["webhooks"]
        assert by_default["timeoutSeconds"] == 2
        assert found.pop(OPT_IN)["timeoutSeconds"] == WEBHOOK_TIMEOUT_SECONDS
        assert {each["timeoutSeconds"] for each in found.values()} == {1}
        assert asked(cluster, simple_pod("pod", outside)) == []
        await_that(lambda: condition(release, "p00").get("status") == "True", "the status")
        with_one_more = policy("more", namespaceSelector=by_label("team", "more"))
        cluster.create(POLICIES, with_one_more)
        await_that(lambda: set(release.webhooks()) == {OPT_IN, BY_SELECTOR}, "one for all")
        await_that(
            lambda: asked(cluster, simple_pod("pod", outside)) == [(BY_SELECTOR, False)],
            "it is asked about pods that no policy covers",
        )
        assert asked(cluster, simple_pod("pod", covered)) == [(BY_SELECTOR, True)]
        for name in ("p00", "more"):
            await_that(
                lambda n=name: condition(release, n).get("status") == "False",  # type: ignore[misc]
                "the status says so",
            )
        said = condition(release, "more")
        assert said["reason"] == "TooManySelectors"
        assert "more than 20 pairs of namespaceSelector and podSelector" in said["message"]
        assert condition(release, "opt-in")["reason"] == "OptIn"
        (replica,) = release.replicas
        assert replica.log.read_text().count("more than 20 pairs") == 1
        cluster.request("DELETE", f"{POLICIES}/more")
        await_that(lambda: len(release.webhooks()) == 1 + MAX_WEBHOOKS, "one for each again")
        await_that(lambda: asked(cluster, simple_pod("pod", outside)) == [], "nothing more")
        await_that(
            lambda: condition(release, "p00").get("status") == "True", "and so does the status"
        )
