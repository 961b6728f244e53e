"""Who is covered, and by what."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from tests.support.factories import SETTINGS, policy
from webhook.core.cluster.view import Namespace
from webhook.core.constants import LABEL_NAMESPACE_NAME
from webhook.core.policy import coverage as policies_module
from webhook.core.policy.coverage import Coverage, PolicySet
from webhook.core.policy.model import SettlePolicy

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


@pytest.mark.parametrize(
    ("selector", "covers"),
    [
        (EVERYWHERE, True),
        (OPT_IN, False),
        ({"matchLabels": {"team": "a"}}, True),
        ({"matchLabels": {"team": "b"}}, False),
        (expression("team", "In", "a", "b"), True),
        (expression("team", "In", "b"), False),
        (expression("team", "NotIn", "b"), True),
        (expression("team", "NotIn", "a"), False),
        (expression("team", "Exists"), True),
        (expression("absent", "Exists"), False),
        (expression("absent", "DoesNotExist"), True),
        (expression("team", "DoesNotExist"), False),
    ],
)
def test_a_namespace_selector_covers_what_it_selects(selector: Any, covers: bool) -> None:
    found = cover(policy(namespaceSelector=selector), team="a")
    assert names(found) == (["p"] if covers else [])
    assert found.missing_policy == ""


def test_a_namespace_opts_in_by_naming_a_policy_whatever_its_selector_says() -> None:
    policies = [
        policy("asked", namespaceSelector=OPT_IN),
        policy("elsewhere", namespaceSelector={"matchLabels": {"team": "b"}}),
        policy("quiet", namespaceSelector=OPT_IN),
    ]
    assert names(cover(*policies, podsettle_dev__policy="asked")) == ["asked"]
    assert names(cover(*policies, podsettle_dev__policy="elsewhere")) == ["elsewhere"]


def test_a_policy_that_is_asked_for_and_missing_is_told() -> None:
    found = cover(policy("wide"), podsettle_dev__policy="gone")
    assert names(found) == ["wide"]
    assert found.missing_policy == "gone"


@pytest.mark.parametrize("name", ["ci", "kube-system", "podsettle-system"])
def test_enabled_false_is_over_everything(name: str) -> None:
    found = cover(
        policy("everywhere"),
        policy("by-name", namespaceSelector=named(name)),
        name=name,
        podsettle_dev__policy="everywhere",
        podsettle_dev__enabled="false",
    )
    assert found == Coverage(disabled=True)


@pytest.mark.parametrize("value", ["true", "", "no"])
def test_enabled_means_only_false_as_off(value: str) -> None:
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
def test_system_namespaces_are_protected_and_opting_in_is_not_enough(
    name: str, selector: Any
) -> None:
    found = cover(
        policy(namespaceSelector=selector), name=name, team="a", podsettle_dev__policy="p"
    )
    assert found == Coverage(protected=True)


@pytest.mark.parametrize("name", ["kube-system", "openshift-monitoring"])
@pytest.mark.parametrize("by", ["matchLabels", "In"])
def test_a_selector_that_names_a_system_namespace_covers_it(name: str, by: str) -> None:
    selector = (
        named(name) if by == "matchLabels" else expression(LABEL_NAMESPACE_NAME, "In", "x", name)
    )
    found = cover(policy("wide"), policy("named", namespaceSelector=selector), name=name)
    assert names(found) == ["named"]
    assert not found.protected


def test_naming_a_system_namespace_does_not_help_where_the_selector_fails_otherwise() -> None:
    selector = named("kube-system") | expression("team", "Exists")
    assert cover(policy(namespaceSelector=selector), name="kube-system").protected


@pytest.mark.parametrize("name", ["kubernetes", "kube", "openshift", "my-kube-system"])
def test_only_the_prefixes_are_protected(name: str) -> None:
    assert names(cover(policy(), name=name)) == ["p"]


def test_the_own_namespace_is_protected_even_from_a_policy_that_names_it() -> None:
    own = SETTINGS.own_namespace
    assert own
    by_name = policy(namespaceSelector=named(own))
    assert cover(policy("wide"), by_name, name=own, own=own) == Coverage(protected=True)
    assert names(cover(by_name, name=own, own=None)) == ["p"]


def test_policies_come_by_priority_and_then_by_name() -> None:
    found = cover(
        policy("b", priority=1), policy("c", priority=-5), policy("a", priority=1), policy("z",
        priority=100), policy("d"),
    )  # fmt: skip
    assert names(found) == ["z", "a", "b", "d", "c"]


def test_new_labels_of_a_namespace_are_seen() -> None:
    policies = PolicySet([policy(namespaceSelector={"matchLabels": {"team": "a"}})])
    for labels, covered in [({"team": "a"}, 1), ({"team": "b"}, 0), ({"team": "a"}, 1)]:
        for _ in range(2):
            found = policies.coverage_for(Namespace("ci", labels), None)
            assert len(found.policies) == covered


def test_two_namespaces_with_equal_labels_are_told_apart() -> None:
    policies = PolicySet([policy()])
    labels = {"team": "a"}
    assert policies.coverage_for(Namespace("kube-system", labels), None).protected
    assert not policies.coverage_for(Namespace("ci", labels), None).protected
    assert len(policies) == 1


# What is kept is bounded by its size, whatever labels tenants choose.

MANY = [
    policy(
        f"p{number}",
        namespaceSelector={"matchLabels": {f"n{number}": "x"}},
        podSelector={"matchLabels": {f"p{number}": "x"}},
    )
    for number in range(60)
]


def some(prefix: str, number: int) -> dict[str, str]:
    """Labels by the bits of a number: each number chooses another set of policies."""
    return {f"{prefix}{bit}": "x" for bit in range(60) if number >> bit & 1}


def ask(policies: PolicySet, number: int, name: str = "ci") -> None:
    # Times an odd number, so that half of the bits are set.
    chosen = number * 0x9E3779B97F4A7C15 % 2**60
    coverage = policies.coverage_for(Namespace(name, some("n", chosen)), None)
    coverage.group.plan(some("p", chosen))


def peak_bytes(questions: int) -> int:
    """Of memory, that as many questions take that all differ."""
    policies = PolicySet(MANY)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, questions):
            ask(policies, number)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_sets_of_policies_take_no_more_memory_however_many_are_asked_for() -> None:
    assert peak_bytes(2_800) < 1.5 * peak_bytes(700)


def test_a_few_sets_of_policies_are_kept() -> None:
    policies = PolicySet(MANY)
    labels = [some("n", number) for number in range(1, 200)]
    groups = [policies.coverage_for(Namespace("ci", each), None).group for each in labels]
    again = [policies.coverage_for(Namespace("ci", each), None).group for each in labels]
    assert all(one is other for one, other in zip(groups, again, strict=True))
    plans = [groups[-1].plan(each) for each in (some("p", 1), some("p", 7))]
    assert plans == [groups[-1].plan(each) for each in (some("p", 1), some("p", 7))]
    assert plans[0] is groups[0].plan(some("p", 1))


def test_namespaces_are_remembered_up_to_a_size_of_their_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policies_module, "MAX_COVERAGE_CACHE_BYTES", 100_000)
    policies = PolicySet([policy()])

    def kept(name: str, **labels: str) -> bool:
        space = Namespace(name, labels)
        found = policies.coverage_for(space, None)
        return policies.coverage_for(space, None) is found

    assert kept("one", a="b")
    assert not kept("large", a="x" * 100_000)
    assert kept("one", a="b")
    for number in range(1_000):
        assert kept(f"n{number}", a="x" * 10_000)
        # Relabelled, it is counted once.
        assert kept("one", a=str(number))
    assert policies._coverage_cache_bytes <= 100_000
    assert len(policies._coverage_cache) <= 10


def test_with_its_own_caches_it_finds_the_same_and_leaves_nothing_behind() -> None:
    policies = PolicySet(MANY)
    namespace = Namespace("ci", some("n", 5))
    before = policies.coverage_for(namespace, None)
    plan = before.group.plan(some("p", 5))
    own = policies.with_own_caches()
    found = own.coverage_for(Namespace("ci", some("n", 5)), None)
    assert names(found) == names(before)
    assert found.group is not before.group
    assert found.group.plan(some("p", 5)) is not plan
    for number in range(2_000):
        ask(own, number)
    assert policies.coverage_for(namespace, None) is before
    assert before.group.plan(some("p", 5)) is plan
