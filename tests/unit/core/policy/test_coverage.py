"""Tests for webhook.core.policy.coverage: which policies cover a namespace."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from tests.support.factories import SETTINGS, policy
from webhook.core.cluster.view import Namespace
from webhook.core.constants import LABEL_NAMESPACE_NAME, LABEL_POLICY
from webhook.core.policy import coverage as module
from webhook.core.policy.coverage import Coverage, PolicySet
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.plan import Plan

OPT_IN: Any = None
EVERYWHERE: Any = {}


def named(name: str) -> dict[str, Any]:
    return {"matchLabels": {LABEL_NAMESPACE_NAME: name}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def cover(
    *policies: SettlePolicy, name: str = "ci", own: str | None = "podsettle-system", **labels: str
) -> Coverage:
    full = {
        LABEL_NAMESPACE_NAME: name,
        **{key.replace("__", "/").replace("_", "."): value for key, value in labels.items()},
    }
    return PolicySet(policies).coverage_for(Namespace(name, full), own)


def names(coverage: Coverage) -> list[str]:
    return [found.name for found in coverage.policies]


@pytest.mark.parametrize("name", ["ci", "kube-system", "podsettle-system"])
def test_enabled_false_disables_every_policy(name: str) -> None:
    found = cover(
        policy("everywhere"),
        policy("by-name", namespaceSelector=named(name)),
        name=name,
        podsettle_dev__policy="everywhere",
        podsettle_dev__enabled="false",
    )
    assert found == Coverage(disabled=True)


@pytest.mark.parametrize("value", ["true", "", "no"])
def test_enabled_label_disables_only_with_the_value_false(value: str) -> None:
    assert names(cover(policy(), podsettle_dev__enabled=value)) == ["p"]


@pytest.mark.parametrize("name", ["kube-system", "kube-public", "openshift-monitoring"])
@pytest.mark.parametrize(
    "selector",
    [
        EVERYWHERE,
        OPT_IN,
        {"matchLabels": {"team": "a"}},
        named("other"),
        expression(LABEL_NAMESPACE_NAME, "Exists"),
        expression(LABEL_NAMESPACE_NAME, "NotIn", "other"),
    ],
)
def test_system_namespaces_stay_protected_despite_opt_in(name: str, selector: Any) -> None:
    found = cover(
        policy(namespaceSelector=selector), name=name, team="a", podsettle_dev__policy="p"
    )
    assert found == Coverage(protected=True)


@pytest.mark.parametrize("name", ["kube-system", "openshift-monitoring"])
@pytest.mark.parametrize("by", ["matchLabels", "In"])
def test_selector_that_names_a_system_namespace_covers_it(name: str, by: str) -> None:
    selector = (
        named(name) if by == "matchLabels" else expression(LABEL_NAMESPACE_NAME, "In", "x", name)
    )
    found = cover(policy("wide"), policy("named", namespaceSelector=selector), name=name)
    assert names(found) == ["named"]
    assert not found.protected


@pytest.mark.parametrize("name", ["kubernetes", "kube", "openshift", "my-kube-system"])
def test_only_namespaces_with_a_system_prefix_are_protected(name: str) -> None:
    assert names(cover(policy(), name=name)) == ["p"]


def test_own_namespace_is_protected_even_if_a_policy_names_it() -> None:
    own = SETTINGS.own_namespace
    assert own
    by_name = policy(namespaceSelector=named(own))
    assert cover(policy("wide"), by_name, name=own, own=own) == Coverage(protected=True)
    assert names(cover(by_name, name=own, own=None)) == ["p"]


def test_policies_are_ordered_by_priority_then_name() -> None:
    found = cover(
        policy("b", priority=1), policy("c", priority=-5), policy("a", priority=1), policy("z",
        priority=100), policy("d"),
    )  # fmt: skip
    assert names(found) == ["z", "a", "b", "d", "c"]


# The caches are bounded, whatever labels tenants choose.

MANY = [
    policy(
        f"p{number}",
        namespaceSelector={"matchLabels": {f"n{number}": "x"}},
        podSelector={"matchLabels": {f"p{number}": "x"}},
    )
    for number in range(60)
]


def some(prefix: str, number: int) -> dict[str, str]:
    """Return labels for the bits of a number. Each number selects another set of policies."""
    return {f"{prefix}{bit}": "x" for bit in range(60) if number >> bit & 1}


def ask(policies: PolicySet, number: int, name: str = "ci") -> None:
    # The odd factor makes about half of the bits 1.
    chosen = number * 0x9E3779B97F4A7C15 % 2**60
    coverage = policies.coverage_for(Namespace(name, some("n", chosen)), None)
    coverage.group.plan(some("p", chosen))


def peak_bytes(questions: int) -> int:
    """Return the peak memory in bytes of a number of different queries."""
    policies = PolicySet(MANY)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, questions):
            ask(policies, number)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_cache_of_policy_sets_is_bounded() -> None:
    assert peak_bytes(2_800) < 1.5 * peak_bytes(700)


def test_recent_groups_and_plans_are_cached() -> None:
    policies = PolicySet(MANY)
    labels = [some("n", number) for number in range(1, 200)]
    groups = [policies.coverage_for(Namespace("ci", each), None).group for each in labels]
    again = [policies.coverage_for(Namespace("ci", each), None).group for each in labels]
    assert all(one is other for one, other in zip(groups, again, strict=True))
    plans = [groups[-1].plan(each) for each in (some("p", 1), some("p", 7))]
    assert plans == [groups[-1].plan(each) for each in (some("p", 1), some("p", 7))]


def test_coverage_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COVERAGES", 10)
    policies = PolicySet([policy()])
    spaces = [Namespace(f"n{number}", {LABEL_POLICY: f"gone-{number}"}) for number in range(25)]
    found = [policies.coverage_for(space, None) for space in spaces]
    again = [policies.coverage_for(space, None) for space in reversed(spaces)]
    assert [names(each) for each in again] == [["p"]] * 25
    kept = [one is other for one, other in zip(reversed(found), again, strict=True)]
    assert kept == [True] * 5 + [False] * 20
    long = Namespace(f"kube-{'x' * 60}", {})
    assert policies.coverage_for(long, None) is not policies.coverage_for(long, None)


def test_labels_that_no_selector_distinguishes_share_a_plan() -> None:
    selectors = (expression("run", "Exists"), expression("app", "NotIn", "a"))
    policies = PolicySet([policy(f"p{n}", podSelector=each) for n, each in enumerate(selectors)])
    group = policies.coverage_for(Namespace("ci", {}), None).group

    def plan(**labels: str) -> Plan | None:
        return group.plan(labels)

    assert plan(run="1", app="b", hash="x") is plan(run="2", app="c", hash="y")
    cases: list[tuple[dict[str, str], tuple[str, ...]]] = [
        ({"run": "1"}, ("p0", "p1")),
        ({"run": "1", "app": "a"}, ("p0",)),
        ({"app": "b"}, ("p1",)),
        ({"app": "a"}, ()),
        ({"run": "a", "app": "b"}, ("p0", "p1")),
    ]
    for labels, expected in cases * 2:
        found = plan(**labels)
        assert (found.policies if found else ()) == expected


def test_policy_set_with_own_caches_gives_equal_results_and_leaves_the_original_unchanged() -> None:
    policies = PolicySet(MANY)
    namespace = Namespace("ci", some("n", 5))
    before = policies.coverage_for(namespace, None)
    plan = before.group.plan(some("p", 5))
    own = policies.of(policies.documents)
    found = own.coverage_for(Namespace("ci", some("n", 5)), None)
    assert names(found) == names(before)
    assert found.group is not before.group
    assert found.group.plan(some("p", 5)) is not plan
    for number in range(2_000):
        ask(own, number)
    assert policies.coverage_for(namespace, None) is before
    assert before.group.plan(some("p", 5)) is plan


def test_set_with_replaced_policies_is_like_a_set_of_these_policies() -> None:
    first = PolicySet([policy("a"), policy("b", priority=2, namespaceSelector=named("ci"))])
    added = [
        policy("a", priority=3, namespaceSelector=named("ci")),
        policy("c", namespaceSelector=named("other")),
    ]
    replaced = first.replaced(added)
    fresh = PolicySet([added[0], first.documents[1], added[1]])
    assert replaced.documents == fresh.documents
    assert len(replaced) == 3
    assert replaced.by_precedence == fresh.by_precedence
    for name in ("ci", "other"):
        space = Namespace(name, {LABEL_NAMESPACE_NAME: name})
        assert names(replaced.coverage_for(space, None)) == names(fresh.coverage_for(space, None))
    assert [each.metadata.name for each in first.by_precedence] == ["b", "a"]
    fewer = replaced.of([added[1]])
    other = Namespace("other", {LABEL_NAMESPACE_NAME: "other"})
    assert fewer.documents == (added[1],)
    assert (
        fewer.coverage_for(other, None).policies[0]
        is (replaced.coverage_for(other, None).policies[0])
    )
