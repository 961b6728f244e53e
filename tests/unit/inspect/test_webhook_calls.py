"""Tests of the answer whether the API server calls podsettle for a new pod."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest

from webhook.cluster.errors import Unreachable
from webhook.core.cluster.view import Namespace
from webhook.core.constants import LABEL_NAMESPACE_NAME
from webhook.core.policy.cluster_webhooks import OPT_IN_WEBHOOK, cluster_webhooks
from webhook.core.policy.webhook_selectors import SelectorPair, WebhookSelectors
from webhook.inspect.installation import Called, WebhookCalls

Json: TypeAlias = dict[str, Any]

CI = Namespace("ci", {LABEL_NAMESPACE_NAME: "ci", "team": "build"})
RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
NOT_CI = {"key": LABEL_NAMESPACE_NAME, "operator": "NotIn", "values": ["ci"]}
OTHER_TEAM = {"key": "team", "operator": "NotIn", "values": ["build"]}


def webhook(**fields: Any) -> Json:
    return {"name": OPT_IN_WEBHOOK, "rules": [RULE], **fields}


def calls(*webhooks: Json) -> WebhookCalls:
    return WebhookCalls(webhooks)


@pytest.mark.parametrize("words", [{}, {"resources": ["*"]}, {"resources": ["*/*"]},
                                   {"operations": ["*"]}, {"apiGroups": ["*"]}, {"scope": "*"},
                                   {"scope": "Namespaced"}])  # fmt: skip
def test_one_matching_webhook_of_several_is_enough(words: Json) -> None:
    other = webhook(namespaceSelector={"matchExpressions": [NOT_CI]})
    matching = webhook(rules=[{**RULE, **words}])
    assert calls(other, matching).call_for(CI, {}) == (Called.YES, "")


@pytest.mark.parametrize(
    ("webhooks", "why"),
    [
        ((), "no MutatingWebhookConfiguration"),
        ((webhook(rules=[{**RULE, "operations": ["UPDATE"]}]),), "no rule of podsettle's webhooks"),
        ((webhook(rules=[{**RULE, "resources": ["nodes"]}]),), "no rule of podsettle's webhooks"),
        ((webhook(rules=[{**RULE, "scope": "Cluster"}]),), "no rule of podsettle's webhooks"),
        (
            (webhook(namespaceSelector={"matchExpressions": [NOT_CI]}),),
            "the webhook configuration excludes namespace ci by name",
        ),
        (
            (webhook(namespaceSelector={"matchExpressions": [NOT_CI, OTHER_TEAM]}),),
            "no namespaceSelector of podsettle's webhooks matches namespace ci",
        ),
        (
            (webhook(objectSelector={"matchLabels": {"a": "b"}}),),
            "no objectSelector of podsettle's webhooks matches the pod's labels",
        ),
        (
            # Each selector matches, but in another webhook.
            (
                webhook(namespaceSelector={"matchExpressions": [NOT_CI]}),
                webhook(objectSelector={"matchLabels": {"a": "b"}}),
            ),
            "no objectSelector of podsettle's webhooks matches the pod's labels",
        ),
    ],
)
def test_pod_that_no_webhook_matches_is_not_sent_to_podsettle(
    webhooks: tuple[Json, ...], why: str
) -> None:
    call = calls(*webhooks).call_for(CI, {"app": "web"})
    assert call.called is Called.NO
    assert call.why.startswith(why)


def test_conditions_of_the_operator_leave_the_answer_open() -> None:
    mine = {"name": "only-large", "expression": "size(object.spec.containers) > 1"}
    call = calls(webhook(matchConditions=[mine])).call_for(CI, {})
    assert call.called is Called.UNKNOWN
    assert "only-large" in call.why


def test_conditions_that_podsettle_writes_leave_no_doubt() -> None:
    nothing: frozenset[Any] = frozenset()
    selectors = WebhookSelectors({"p.podsettle.dev": SelectorPair(nothing, nothing, nothing)})
    (made,) = cluster_webhooks(webhook(), selectors)
    assert len(made["matchConditions"]) == 4
    assert calls(made).call_for(CI, {}).called is Called.YES


@pytest.mark.parametrize(
    "selector",
    [
        "app=web",
        {"matchLabels": ["app"]},
        {"matchExpressions": {"key": "app"}},
        {"matchExpressions": [{"operator": "Exists"}]},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": 5}]},
    ],
)
@pytest.mark.parametrize("field", ["namespaceSelector", "objectSelector"])
def test_selector_of_another_type_is_not_of_an_api_server(field: str, selector: Any) -> None:
    with pytest.raises(Unreachable, match="a webhook configuration in the response is malformed"):
        calls(webhook(**{field: selector})).call_for(CI, {"app": "web"})
