"""Tests of policies in the input of a preview."""

from __future__ import annotations

from typing import Any

from tests.support.factories import (
    SETTINGS,
    container,
    pod,
    policy,
    policy_document,
    reasons,
    view,
)
from webhook.core.policy.coverage import PolicySet
from webhook.core.preview.pods_in_document import PassedOver, pods_of, policies_in
from webhook.core.preview.preview import Preview, preview_all
from webhook.core.reasons import Reason

QUICK = container("prepare", "/entrypoint")


def invalid_policy(name: str) -> dict[str, Any]:
    document = policy_document(name)
    document["spec"]["remedies"] = {"postInitSlep": {}}
    return document


def test_policy_of_the_input_replaces_the_one_with_its_name() -> None:
    audit = policy_document("p", action="Audit")
    policies = PolicySet([policy("p"), policy("q")]).replaced(policies_in(audit).values())
    assert [(p.metadata.name, p.spec.action) for p in policies.documents] == [
        ("p", "Audit"),
        ("q", "Mutate"),
    ]


def test_policy_of_the_input_decides_before_any_policy_is_installed() -> None:
    seen = view()
    policies = seen.policies.replaced(policies_in(policy_document("new")).values())
    (found,) = preview_all(pod(QUICK), policies, seen, SETTINGS)
    assert isinstance(found, Preview)
    assert reasons(found.decision) == [f"prepare: {Reason.APPLIED}"]
    assert found.decision.policies == ("new",)


def test_first_of_two_policies_with_one_name_counts_and_invalid_ones_are_left_out() -> None:
    first, second = policy_document("p", priority=1), policy_document("p", priority=2)
    items = [invalid_policy("bad"), first, {"kind": "List", "items": [second]}]
    found = policies_in({"kind": "List", "items": items})
    assert {name: each.spec.priority for name, each in found.items()} == {"p": 1}


def test_policy_is_passed_over_as_an_object_without_a_pod() -> None:
    (found,) = pods_of(policy_document("p"))
    assert isinstance(found, PassedOver)
    assert (found.kind, found.name, found.malformed) == ("SettlePolicy", "p", False)
    assert found.message == "a policy: this preview uses it as if it were applied"


def test_invalid_policy_is_malformed_with_the_path_of_its_error() -> None:
    (found,) = pods_of({"kind": "List", "items": [invalid_policy("p")]})
    assert isinstance(found, PassedOver)
    assert found.malformed
    assert found.steps == ("items", 0, "spec", "remedies", "postInitSlep")
    assert "did you mean postInitSleep?" in found.message
