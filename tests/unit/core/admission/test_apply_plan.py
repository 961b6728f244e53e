"""A decision depends on its arguments alone, and changes none of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import assume, given

from tests.support.factories import Json, review
from tests.support.strategies import PODS, VIEWS
from tests.support.strategies import SETTINGS as SOME_SETTINGS
from webhook.core.admission.apply_plan import apply_plan
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decider import Decider, OperatorSettings
from webhook.core.admission.review import Request, decode_review
from webhook.core.cluster.view import ClusterFacts
from webhook.core.decision_input import DecisionInput, facts_of, namespace_facts_of
from webhook.core.images import Images
from webhook.core.patch.self_check import PatchError
from webhook.core.pod import DECODE_ERRORS
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


@given(PODS, VIEWS, SOME_SETTINGS)
def test_apply_plan_depends_on_its_arguments_alone(
    document: Json, seen: Snapshot, settings: OperatorSettings
) -> None:
    try:
        pod = decoded(document).pod
        facts = facts_of(pod)
    except DECODE_ERRORS:
        assume(False)
        raise
    namespace = seen.namespace("ci")
    assert namespace is not None
    plan = seen.policies.coverage_for(namespace, None).group.plan(pod.labels or {})
    assume(plan is not None)
    assert plan is not None
    cluster = ClusterFacts(
        seen.nodes,
        seen.runtime_classes,
        seen.server_version,
        settings.linger_image,
        settings.linger_version,
        settings.docs_url,
    )
    level = namespace.fixed_selinux_level
    decision_input = DecisionInput(facts, namespace_facts_of("ci", fixed_selinux_level=level))
    key = encode(decision_input)
    try:
        first = apply_plan(decision_input, plan, cluster, Images())
        assert encode(decision_input) == key
        # The decision on the key is the decision on the pod.
        again = msgspec.json.decode(key, type=DecisionInput)
        assert apply_plan(again, plan, cluster, Images()) == first
    except (*DECODE_ERRORS, PatchError):
        assume(False)
