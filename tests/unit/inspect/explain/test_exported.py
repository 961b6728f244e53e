"""Tests of what explanations say about native policies."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.support.exported_policies import CREATED, as_read, written
from tests.support.factories import Json, container, mutate_pod, namespace, pod, policy, view
from webhook.cluster.rights import Right
from webhook.cluster.unread import Unread
from webhook.cluster.view_reader import NOT_INSTALLED
from webhook.core.policy.snapshot import Snapshot
from webhook.inspect.explain.found import Found, explain
from webhook.inspect.explain.model import PodExplanation, WorkloadExplanation
from webhook.inspect.explain.pod import explain_pod
from webhook.inspect.explain.target import ObjectTarget, parse_target
from webhook.inspect.exported_policies import MUTATING, ExportedPolicy
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.webhook_calls import WebhookCalls

REMEDIES = {"postInitSleep": {"when": "Always", "delivery": "Shell"}}
OWN = policy("quick", remedies=REMEDIES)
NAMESPACE = namespace("ci", {"kubernetes.io/metadata.name": "ci"})
PLAIN = pod(container("prepare", "sh", "-c", "true"), labels={"app": "a"})
SETTLED = mutate_pod(PLAIN, view(OWN, namespaces=[NAMESPACE]))
WEBHOOK: Json = {
    "name": "opt-in.podsettle.dev",
    "rules": [
        {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    ],
}
CALLED, NOT_CALLED = WebhookCalls((WEBHOOK,)), WebhookCalls()
SELECTS = "MutatingAdmissionPolicy quick.podsettle.dev, exported by podsettle "


def in_force(*seen: Any) -> tuple[ExportedPolicy, ...]:
    return as_read(written(view(*seen)), MUTATING).policies


def explained(
    document: Json,
    calls: WebhookCalls,
    *,
    exported: tuple[ExportedPolicy, ...] | None = None,
    seen: Snapshot | None = None,
    created: str = "2026-01-03T00:00:00Z",
    **known: Any,
) -> PodExplanation:
    document["metadata"]["creationTimestamp"] = created
    whole = seen or view(OWN, namespaces=[NAMESPACE])
    found = in_force(OWN) if exported is None else exported
    cluster = KnownCluster(whole, calls=calls, **known)
    return explain_pod(document, cluster, "ci", exported=found)


def test_settled_pod_came_from_the_exported_policy_if_there_is_no_webhook() -> None:
    found = explained(SETTLED, NOT_CALLED)
    selects, applied = found.notes
    assert selects.startswith(SELECTS)
    assert selects.endswith("the API server itself applies postInitSleep.")
    assert applied == (
        "quick.podsettle.dev applied postInitSleep to this pod, as the API server does not "
        "call podsettle for such a pod."
    )
    assert [each.today for each in found.applied] == [""]


def test_settled_pod_came_from_either_if_the_webhook_is_called_too() -> None:
    notes = explained(SETTLED, CALLED).notes
    assert notes[1] == (
        "quick.podsettle.dev or the webhook applied postInitSleep to this pod: both leave "
        "the same annotations."
    )


@pytest.mark.parametrize(
    ("created", "is_older"), [(CREATED, False), ("2026-01-01T00:00:00Z", True)]
)
def test_exported_policy_that_is_newer_than_the_pod_did_not_change_it(
    created: str, is_older: bool
) -> None:
    notes = explained(SETTLED, NOT_CALLED, created=created).notes
    newer = "quick.podsettle.dev did not change this pod, because it is newer than the pod."
    assert (newer in notes) == is_older
    assert any("applied postInitSleep to this pod" in note for note in notes) != is_older


def test_unsettled_pod_learns_that_the_exported_policy_acts_today() -> None:
    found = explained(PLAIN, NOT_CALLED)
    assert found.verdict == (
        "podsettle did not change this pod, but a native policy would change a new pod like "
        "this one."
    )
    assert not any("does not call podsettle" in note for note in found.notes)
    assert found.advice[-1].startswith("Create the pod again")
    without = explained(PLAIN, NOT_CALLED, exported=())
    assert "does not call podsettle" in without.verdict


def test_pod_is_explained_without_settle_policies_in_the_cluster() -> None:
    right = Right("list", "podsettle.dev", "settlepolicies")
    unread = (Unread("settlepolicies", right, NOT_INSTALLED),)
    found = explained(SETTLED, NOT_CALLED, seen=view(namespaces=[NAMESPACE]), unread=unread)
    assert found.verdict == "podsettle changed this pod when it was created."
    assert found.notes[0].startswith(SELECTS)
    assert "applied postInitSleep to this pod, as the API server" in found.notes[1]


@pytest.mark.parametrize(
    "spec",
    [
        {"podSelector": {"matchLabels": {"app": "b"}}},
        {"namespaceSelector": {"matchLabels": {"team": "a"}}},
        {"namespaceSelector": None},
        {"remedies": {"runtimeClass": {"name": "missing"}}},
    ],
    ids=["labels of the pod", "labels of the namespace", "opt-in", "missing class"],
)
def test_exported_policy_that_is_not_in_force_for_the_pod_is_not_named(
    spec: dict[str, Any],
) -> None:
    other = policy(**{"name": "quick", "remedies": REMEDIES, **spec})
    found = explained(SETTLED, NOT_CALLED, exported=in_force(other))
    assert not any("quick.podsettle.dev" in note for note in found.notes)


@pytest.mark.parametrize("is_named", [False, True])
def test_protected_namespace_is_selected_only_by_its_name(is_named: bool) -> None:
    name = {"kubernetes.io/metadata.name": "kube-system"}
    (found,) = in_force(
        policy(
            remedies=REMEDIES,
            namespaceSelector={"matchLabels": name} if is_named else {},
        )
    )
    known = view(namespaces=[namespace("kube-system", name)]).namespaces["kube-system"]
    assert found.selects(known, {}, None) == is_named
    assert not found.selects(known, {}, "kube-system")


def test_next_pod_of_a_workload_is_changed_by_the_exported_policy() -> None:
    deployment = {
        "metadata": {"name": "web", "namespace": "ci"},
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"template": {"metadata": {"labels": {"app": "a"}}, "spec": PLAIN["spec"]}},
    }
    target = parse_target("deploy/web")
    assert isinstance(target, ObjectTarget)
    cluster = KnownCluster(view(OWN, namespaces=[NAMESPACE]), calls=NOT_CALLED)
    found = explain(target, Found(deployment, "ci", exported=in_force(OWN)), cluster)
    assert isinstance(found, WorkloadExplanation)
    assert found.verdict == "A native policy would change the next pod of this workload."
    assert found.notes[0].startswith(SELECTS)
    without = explain(target, Found(deployment, "ci"), cluster)
    assert "because the API server does not call podsettle" in without.verdict


@pytest.mark.parametrize("action", [None, "Audit"])
def test_native_policy_is_in_the_verdict_if_no_settle_policy_settles(action: str | None) -> None:
    """As after `podsettle scan -o policy --native --mutate`."""
    own = [policy("quick", remedies=REMEDIES, action=action)] if action else []
    seen = view(*own, namespaces=[NAMESPACE])
    found = explained(PLAIN, NOT_CALLED, seen=seen)
    assert found.verdict == (
        "podsettle did not change this pod. A native policy selects a new pod like it."
    )
    assert [each.today for each in explained(SETTLED, NOT_CALLED, seen=seen).applied] == [""]
    without = explained(PLAIN, NOT_CALLED, seen=seen, exported=())
    assert "would not change a new pod like this one" in without.verdict


def test_native_policy_is_in_the_verdict_on_a_workload_without_settle_policies() -> None:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": PLAIN["spec"]}
    deployment = {
        "metadata": {"name": "web", "namespace": "ci"},
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"template": template},
    }
    target = parse_target("deploy/web")
    assert isinstance(target, ObjectTarget)
    cluster = KnownCluster(view(namespaces=[NAMESPACE]), calls=NOT_CALLED)
    found = explain(target, Found(deployment, "ci", exported=in_force(OWN)), cluster)
    assert isinstance(found, WorkloadExplanation)
    assert found.verdict == "A native policy selects the next pod of this workload."


def test_native_policy_does_not_apply_what_the_pod_opts_out_of() -> None:
    own = policy("quick", remedies={**REMEDIES, "fsGroupChangePolicy": "OnRootMismatch"})
    seen = view(own, namespaces=[NAMESPACE])

    def selects(skip: str) -> list[str]:
        plain = deepcopy(PLAIN)
        plain["metadata"]["annotations"] = {"podsettle.dev/skip": skip}
        notes = explained(plain, NOT_CALLED, exported=in_force(own), seen=seen).notes
        return [each for each in notes if each.startswith(SELECTS)]

    assert selects("true") == []
    assert selects("postInitSleep, fsGroupChangePolicy") == []
    (one,) = selects(" postInitSleep")
    assert one.endswith("the API server itself applies fsGroupChangePolicy.")
