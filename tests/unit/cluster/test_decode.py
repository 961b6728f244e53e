"""What is kept of Kubernetes objects, where there are thousands of them."""

from __future__ import annotations

import json

import pytest

from tests.support.factories import namespace
from webhook.cluster import decode as objects
from webhook.cluster.decode import read_namespace


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_shared_values", {})


def value_of(label: str, **labels: str) -> str:
    """The value as it is kept, of labels that came over a wire."""
    return read_namespace(json.loads(json.dumps(namespace("ci", labels)))).labels[label]


def test_a_value_that_objects_have_in_common_is_kept_once() -> None:
    assert value_of("tier", tier="a tier") is value_of("tier", tier="a tier")


def test_values_that_they_do_not_have_in_common_are_not_remembered_without_end() -> None:
    first = value_of("tier", tier="a tier")
    for number in range(5_000):
        assert value_of("team", team=f"team {number}") == f"team {number}"

    assert len(objects._shared_values) == objects._MAX_SHARED_VALUES
    assert value_of("tier", tier="a tier") is first
