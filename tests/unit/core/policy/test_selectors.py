from __future__ import annotations

import re
from typing import Any

import pytest

from webhook.core.labels import compile_requirement, parse_labels
from webhook.core.policy.selectors import LabelSelector, compile_selector

LABELS = {"team": "ci", "tier": "", "n": "5"}


def holds(selector: dict[str, Any]) -> bool:
    return compile_selector(LabelSelector.model_validate(selector))(LABELS)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_selector_matches_as_in_kubernetes() -> None:
    cases: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"matchLabels": {"team": "ci"}}, True),
        ({"matchLabels": {"team": "cd"}}, False),
        ({"matchLabels": {"team": "ci", "absent": "x"}}, False),
        ({"matchLabels": {"tier": ""}}, True),
        ({"matchLabels": {"absent": ""}}, False),
        (expression("team", "In", "cd", "ci"), True),
        (expression("team", "In", "cd"), False),
        (expression("absent", "In", ""), False),
        (expression("team", "NotIn", "cd"), True),
        (expression("team", "NotIn", "ci"), False),
        (expression("absent", "NotIn", "ci"), True),
        (expression("tier", "Exists"), True),
        (expression("absent", "Exists"), False),
        (expression("absent", "DoesNotExist"), True),
        (expression("tier", "DoesNotExist"), False),
        ({"matchLabels": {"team": "ci"}, **expression("n", "Exists")}, True),
        ({"matchLabels": {"team": "ci"}, **expression("n", "DoesNotExist")}, False),
        ({"matchLabels": {"team": "cd"}, **expression("n", "Exists")}, False),
    ]
    assert [(selector, holds(selector)) for selector, _ in cases] == cases


@pytest.mark.parametrize(
    ("operator", "label", "bound", "matches"),
    [
        ("Gt", "6", "5", True),
        ("Gt", "5", "5", False),
        ("Gt", "10", "9", True),  # Numbers, not texts.
        ("Lt", "4", "5", True),
        ("Lt", "5", "5", False),
        ("Gt", "many", "5", False),
        ("Lt", "", "5", False),
        ("Gt", "1_000", "5", False),  # Go's strconv.ParseInt takes no underscores in base 10.
    ],
)
def test_gt_and_lt_compare_integers(operator: str, label: str, bound: str, matches: bool) -> None:
    assert compile_requirement(operator, "n", (bound,))({"n": label}) is matches


def test_listed_values_come_only_from_match_labels_and_in() -> None:
    found = LabelSelector.model_validate(
        {
            "matchLabels": {"name": "a"},
            "matchExpressions": [
                {"key": "name", "operator": "In", "values": ["b", "c"]},
                {"key": "name", "operator": "NotIn", "values": ["d"]},
                {"key": "name", "operator": "Exists"},
                {"key": "other", "operator": "In", "values": ["e"]},
            ],
        }
    )
    assert found.listed_values("name") == {"a", "b", "c"}
    assert found.listed_values("absent") == frozenset()


def test_labels_are_parsed_from_texts() -> None:
    assert parse_labels(["team=build", "a.b/c=", "d=e"]) == {"team": "build", "a.b/c": "", "d": "e"}


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("team", "label 'team' is not of the form key=value"),
        ("=x", "'' is not a label key"),
        (f"{'a' * 64}=y", f"'{'a' * 64}' is not a label key"),
        ("a=b c", "'b c' is not a label value"),
        (f"a={'b' * 64}", f"'{'b' * 64}' is not a label value"),
    ],
)
def test_text_that_is_not_a_label_is_an_error(pair: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_labels([pair])
