"""Shared label values of thousands of Kubernetes objects."""

from __future__ import annotations

import json

from tests.support.factories import namespace
from webhook.cluster.decode import SharedValues, read_namespace


def value_of(label: str, shared_values: SharedValues, **labels: str) -> str:
    """Return the value of a label after the JSON document was decoded."""
    document = json.loads(json.dumps(namespace("ci", labels)))
    return read_namespace(document, shared_values).labels[label]


def test_equal_label_values_share_one_string() -> None:
    shared = SharedValues()
    assert value_of("tier", shared, tier="a tier") is value_of("tier", shared, tier="a tier")


def test_number_of_shared_label_values_is_bounded() -> None:
    shared = SharedValues()
    first = value_of("tier", shared, tier="a tier")
    for number in range(5_000):
        assert value_of("team", shared, team=f"team {number}") == f"team {number}"

    assert len(shared) == 1_000
    assert value_of("tier", shared, tier="a tier") is first
