"""The reviews of the benchmark."""

from __future__ import annotations

import msgspec
import pytest

from bench import reviews
from tests.support.factories import SETTINGS, policy, view
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.handler import admit
from webhook.core.admission.review import decode_review
from webhook.core.pod_facts import facts_of

SEEN = view(policy())


@pytest.mark.parametrize("kilobytes", [2, 8, 60, 250])
def test_variants_have_similar_sizes_and_unique_names(kilobytes: int) -> None:
    bodies = reviews.variants(reviews.of_size(kilobytes))
    assert len(set(bodies)) == reviews.VARIANTS >= 64
    assert all(kilobytes * 950 < len(body) < kilobytes * 1150 for body in bodies)
    found = [decode_review(body).request for body in bodies]
    assert len({request.uid for request in found}) == len(bodies)
    assert len({request.pod.name for request in found}) == len(bodies)


def test_variants_are_the_same_in_every_run() -> None:
    assert reviews.variants(reviews.tekton()) == reviews.variants(reviews.tekton())


def test_variant_replaces_a_name_consistently() -> None:
    body = reviews.variants(reviews.tekton(), 1)[0]
    request = decode_review(body).request
    labels = request.pod.labels
    assert labels
    assert request.pod.name == f"{labels['tekton.dev/taskRun']}-pod"


def test_init_containers_have_unique_names() -> None:
    review = reviews.encode(reviews.with_init_containers(40))
    containers = decode_review(review).request.pod.spec.init_containers or ()
    assert len({container.name for container in containers}) == 40


def test_pods_of_distinct_templates_exceed_the_decision_cache() -> None:
    cache = DecisionCache()
    bodies = reviews.distinct_templates()
    first, *_ = [
        admit(body, SEEN.policies, SEEN, SETTINGS, cache=cache).decision for body in bodies
    ]
    assert first.operations
    assert admit(bodies[0], SEEN.policies, SEEN, SETTINGS, cache=cache).decision is not first


def test_variants_have_the_same_cache_key() -> None:
    found = [decode_review(body).request.pod for body in reviews.variants(reviews.tekton())]
    assert len({msgspec.json.encode(facts_of(pod)) for pod in found}) == 1
