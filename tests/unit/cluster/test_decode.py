"""Shared label values of thousands of Kubernetes decode."""

from __future__ import annotations

import json

import pytest

from tests.support.factories import namespace
from webhook.cluster import decode
from webhook.cluster.decode import read_namespace


@pytest.fixture(autouse=True)
def _empty_shared_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_shared_values", {})


def value_of(label: str, **labels: str) -> str:
    """Return the value of a label after the JSON document was decoded."""
    return read_namespace(json.loads(json.dumps(namespace("ci", labels)))).labels[label]


def test_equal_label_values_share_one_string() -> None:
    assert value_of("tier", tier="a tier") is value_of("tier", tier="a tier")


def test_number_of_shared_label_values_is_bounded() -> None:
    first = value_of("tier", tier="a tier")
    for number in range(5_000):
        assert value_of("team", team=f"team {number}") == f"team {number}"

    assert len(decode._shared_values) == decode._MAX_SHARED_VALUES
    assert value_of("tier", tier="a tier") is first
