"""Tests for the selectors of cluster webhooks: they match the pods that policies cover."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.factories import Json, container, decide_pod, namespace, pod, policy, view
from tests.support.webhook_configuration import ENTRY
from webhook.core.admission.decider import OperatorSettings
from webhook.core.policy.cluster_webhooks import cluster_webhooks
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.selectors import LabelRequirement, LabelSelector, compile_selector
from webhook.core.policy.webhook_selectors import (
    CLUSTER_WEBHOOK,
    MAX_SELECTOR_BYTES,
    MAX_WEBHOOKS,
    is_cluster_webhook,
    selector_pair,
    webhook_selectors,
)
from webhook.core.reasons import Reason


def asks(webhook: Json, space: Json, document: Json) -> bool:
    """Return whether the API server calls the webhook for a pod that is created in a namespace."""

    def matches(selector: str, labels: Json) -> bool:
        found = LabelSelector.model_validate(webhook.get(selector) or {})
        return compile_selector(found)(labels)

    return (
        matches("namespaceSelector", space["metadata"]["labels"])
        and matches("objectSelector", document["metadata"]["labels"])
        and all(
            _holds(condition, space["metadata"]["name"], document)
            for condition in webhook.get("matchConditions", ())
        )
    )


def _holds(condition: Json, space: str, document: Json) -> bool:
    """Return the value of one of podsettle's match conditions.

    tests/e2e/test_scope.py evaluates the real CEL expressions.
    """
    match condition["name"]:
        case "not-mirror":
            return "kubernetes.io/config.mirror" not in document["metadata"]["annotations"]
        case "not-windows":
            return bool(document["spec"].get("os", {}).get("name") != "windows")
        case "not-settled":
            return True
        case "not-protected":
            prefixes, _, named = condition["expression"].partition(" in ")
            protected = space.startswith(tuple(re.findall(r'startsWith\("([^"]*)"\)', prefixes)))
            return not protected or space in re.findall('"([^"]*)"', named)
    raise AssertionError(condition)


def team(name: str) -> Json:
    return {"matchLabels": {"team": name}}


def app(name: str) -> Json:
    return {"matchLabels": {"app": name}}


def names(*policies: SettlePolicy) -> set[str]:
    return set(webhook_selectors(policies).by_webhook)


def test_equivalent_selectors_share_a_webhook() -> None:
    expressions = [
        {"key": "team", "operator": "In", "values": ["a", "a"]},
        {"key": "x", "operator": "NotIn", "values": ["2", "1"]},
    ]
    other = {
        "matchLabels": {"team": "a"},
        "matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["1", "2"]}],
    }
    first = policy("p", namespaceSelector={"matchExpressions": expressions}, podSelector=app("x"))
    second = policy("q", namespaceSelector=other, podSelector=app("x"))
    assert names(first, second) == {CLUSTER_WEBHOOK}
    changed = policy("q", namespaceSelector=other, podSelector=app("y"))
    assert names(first, changed) == {CLUSTER_WEBHOOK, f"q.{CLUSTER_WEBHOOK}"}


def test_requirements_of_a_policy_are_computed_once() -> None:
    """Those of all policies are read whenever one changes."""
    labelled = policy("a", namespaceSelector=team("x"), podSelector=app("x"))
    first, second = selector_pair(labelled), selector_pair(labelled)
    assert first.namespaces is second.namespaces
    assert first.pods is second.pods
    assert labelled == policy("a", namespaceSelector=team("x"), podSelector=app("x"))


def test_selectors_that_others_include_need_no_webhook() -> None:
    narrow = policy("a", namespaceSelector=team("x"), podSelector=app("x"))
    wide = policy("b", namespaceSelector=team("x"))
    assert names(narrow, wide) == {CLUSTER_WEBHOOK}
    assert webhook_selectors([narrow, wide]).by_webhook[CLUSTER_WEBHOOK].pods == frozenset()
    # Only a policy that names a protected namespace covers it.
    named = policy(
        "c", namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "kube-x"}}
    )
    assert names(named, policy("d")) == {CLUSTER_WEBHOOK, f"d.{CLUSTER_WEBHOOK}"}


def test_webhook_names_depend_only_on_the_policies() -> None:
    policies = [policy(name, namespaceSelector=team(name)) for name in ("c", "b.d", "a", "b")]
    expected = {
        "cluster.podsettle.dev": "a",
        "b.cluster.podsettle.dev": "b",
        "b.d.cluster.podsettle.dev": "b.d",
        "c.cluster.podsettle.dev": "c",
    }
    for order in (policies, policies[::-1]):
        assert {
            name: each.namespaces for name, each in webhook_selectors(order).by_webhook.items()
        } == {
            name: {LabelRequirement("team", "In", (value,))} for name, value in expected.items()
        }  # fmt: skip
    assert all(map(is_cluster_webhook, expected))
    assert not is_cluster_webhook("opt-in.podsettle.dev")
    assert not is_cluster_webhook("mycluster.podsettle.dev")


def test_longest_policy_name_gives_a_valid_webhook_name() -> None:
    longest = "b" * 31 + "." + "c" * 31
    made = names(
        policy("a", namespaceSelector=team("a")),
        policy(longest, namespaceSelector=team("b")),
    )
    assert made == {CLUSTER_WEBHOOK, f"{longest}.{CLUSTER_WEBHOOK}"}
    made_name = max(made, key=len)
    # IsFullyQualifiedName in kubernetes `apimachinery/pkg/util/validation`.
    label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    assert re.fullmatch(rf"{label}(\.{label}){{2,}}", made_name)
    assert len(made_name) <= 253


def many(count: int, **common: Any) -> list[SettlePolicy]:
    return [policy(f"p{n:03}", namespaceSelector=team(f"t{n}"), **common) for n in range(count)]


def test_more_than_twenty_webhooks_are_merged_into_one() -> None:
    assert MAX_WEBHOOKS == 20
    enough = webhook_selectors(many(20))
    assert len(enough.by_webhook) == 20
    assert not enough.merged_because
    selectors = webhook_selectors(many(21))
    assert selectors.merged_because == (
        "the policies have more than 20 pairs of namespaceSelector and podSelector"
    )
    assert list(selectors.by_webhook) == [CLUSTER_WEBHOOK]
    assert selectors.by_webhook[CLUSTER_WEBHOOK].namespaces == frozenset()
    # A requirement that all policies have in common stays.
    common = webhook_selectors(many(21, podSelector=app("x"))).by_webhook[CLUSTER_WEBHOOK]
    assert common.pods == {LabelRequirement("app", "In", ("x",))}
    # Policies that share a webhook, or need none, do not count.
    more = [*many(20), *(policy(f"q{n}", namespaceSelector=team("t1")) for n in range(9))]
    assert not webhook_selectors([*more, policy("opt-in", namespaceSelector=None)]).merged_because


def test_selectors_that_exceed_the_size_limit_are_left_out() -> None:
    def long(name: str) -> SettlePolicy:
        values = [f"{name}{n:060}" for n in range(MAX_SELECTOR_BYTES // 61 // 2 + 1)]
        expression = {"key": "x", "operator": "In", "values": values}
        return policy(name, namespaceSelector={"matchExpressions": [expression]})

    assert not webhook_selectors([long("a")]).merged_because
    selectors = webhook_selectors([long("a"), long("b")])
    assert "bytes" in selectors.merged_because
    assert selectors.by_webhook[CLUSTER_WEBHOOK].namespaces == frozenset()


def test_label_key_that_the_api_server_refuses_is_left_out() -> None:
    keys = ["a..b/x", "a.-b/x", f"{'a' * 254}/x", "good.example/x", "x"]
    expressions = [{"key": key, "operator": "Exists"} for key in keys[:2] + keys[3:]]
    made = webhook_selectors([policy("p", namespaceSelector={"matchExpressions": expressions})])
    assert {each.key for each in made.by_webhook[CLUSTER_WEBHOOK].namespaces} == {
        "good.example/x",
        "x",
    }


# The API server calls podsettle for the pods that policies cover, and for no others.

NAMES = st.sampled_from(["ci", "ci", "build", "kube-system", "kube-x", "openshift-y", "own"])
KEYS = st.sampled_from(["team", "tier"])
VALUES = st.sampled_from(["a", "b"])
EXPRESSIONS = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(VALUES, min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        KEYS,
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
BY_NAME = st.one_of(
    st.builds(lambda name: {"matchLabels": {"kubernetes.io/metadata.name": name}}, NAMES),
    st.builds(
        lambda names, operator: {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": operator, "values": names}
            ]
        },
        st.lists(NAMES, min_size=1, max_size=3),
        st.sampled_from(["In", "NotIn"]),
    ),
)
SELECTORS = st.one_of(
    st.builds(lambda key, value: {"matchLabels": {key: value}}, KEYS, VALUES),
    st.builds(
        lambda labels, expressions: {"matchLabels": labels, "matchExpressions": expressions},
        st.dictionaries(KEYS, VALUES, max_size=1),
        st.lists(EXPRESSIONS, max_size=2),
    ),
)
POLICIES = st.lists(
    st.fixed_dictionaries(
        {
            "namespaceSelector": st.one_of(st.just({}), st.just({}), SELECTORS, BY_NAME, st.none()),
            "podSelector": SELECTORS,
            "priority": st.integers(-1, 1),
        }
    ),
    min_size=1,
    max_size=4,
).map(
    lambda specs: [
        policy(f"p{n}", remedies={"postInitSleep": {"when": "Always"}}, **spec)
        for n, spec in enumerate(specs)
    ]
)
BROAD = many(MAX_WEBHOOKS + 1)
LABELS = st.dictionaries(KEYS, VALUES, min_size=1)
NAMESPACES = st.builds(
    lambda name, labels, own: namespace(
        name, {**labels, **own, "kubernetes.io/metadata.name": name}
    ),
    NAMES,
    LABELS,
    st.sampled_from(
        [{}, {}, {}, {"podsettle.dev/policy": "p0"}, {"podsettle.dev/enabled": "false"}]
    ),
)
PODS = st.builds(
    lambda labels, annotations, extra: pod(
        container("prepare", "sh", "-c", "x"), labels=labels, annotations=annotations, **extra
    ),
    LABELS,
    st.sampled_from([{}, {}, {}, {"kubernetes.io/config.mirror": "x"}]),
    st.sampled_from([{}, {}, {}, {"os": {"name": "windows"}}]),
)
EXCLUDED = "kube-system"
ENTRIES = st.sampled_from(["Ignore", "Fail"]).map(
    lambda failure_policy: {
        **ENTRY,
        "clientConfig": {"service": {"name": "podsettle", "namespace": "own"}},
        "failurePolicy": failure_policy,
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "podsettle.dev/policy", "operator": "Exists"},
                {"key": "podsettle.dev/enabled", "operator": "NotIn", "values": ["false"]},
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": [EXCLUDED, "own"],
                },
            ]
        },
    }
)


@examples(500)
@given(
    policies=POLICIES, more=st.sampled_from([[], [], BROAD]),
    space=NAMESPACES, document=PODS, entry=ENTRIES,
)  # fmt: skip
def test_api_server_calls_for_exactly_the_pods_that_policies_cover(
    policies: list[SettlePolicy],
    more: list[SettlePolicy],
    space: Json,
    document: Json,
    entry: Json,
) -> None:
    everything = [*policies, *more]
    selectors = webhook_selectors(everything)
    asked = [
        each["name"] for each in cluster_webhooks(entry, selectors) if asks(each, space, document)
    ]
    opt_in = asks(entry, space, document)
    assert not (opt_in and asked)
    name, labels = space["metadata"]["name"], space["metadata"]["labels"]
    decision = decide_pod(
        document,
        view(*everything, namespaces=[space]),
        namespace=name,
        settings=OperatorSettings(own_namespace="own"),
    )
    applied = any(outcome.reason is Reason.APPLIED for outcome in decision.outcomes)
    opts_in = "podsettle.dev/policy" in labels
    # The operator's exclusions win over the label. With failurePolicy: Fail they win over all.
    kept_out = name == EXCLUDED and (opts_in or entry["failurePolicy"] == "Fail")
    event(f"applied: {applied}, asked: {len(asked)}, broad: {bool(selectors.merged_because)}")
    if applied and not kept_out:
        assert asked or opt_in
    if not applied:
        # The opt-in webhook, and the webhook for too many policies, match more pods than needed.
        assert not asked or selectors.merged_because
