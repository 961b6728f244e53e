"""A decision depends on its arguments alone, and changes none of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given

from tests.support.factories import Json, review
from tests.support.strategies import PODS, VIEWS
from tests.support.strategies import SETTINGS as SOME_SETTINGS
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decider import Decider, OperatorSettings
from webhook.core.admission.review import Request, decode_review
from webhook.core.policy.snapshot import Snapshot

encode = msgspec.json.encode


def decoded(document: Json) -> Request[Any]:
    return decode_review(json.dumps(review(document)).encode()).request


def text_of(seen: Snapshot) -> str:
    """Return everything that a decision can reach in a view."""
    documents = [each.model_dump_json() for each in seen.policies.documents]
    return repr((seen.nodes, seen.runtime_classes, seen.namespaces, documents))


@given(PODS, VIEWS, SOME_SETTINGS)
def test_decide_changes_none_of_its_arguments(
    document: Json, seen: Snapshot, settings: OperatorSettings
) -> None:
    request, cache = decoded(document), DecisionCache()
    before = encode(request), text_of(seen), repr(settings)
    for used in (None, cache, cache):
        decision = Decider(settings, used).decide(request, seen)
        operations = encode(decision.operations)
        assert (encode(request), text_of(seen), repr(settings)) == before
        assert encode(decision.operations) == operations
