"""The reviews of the benchmark."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from bench import core, reviews
from bench.errors import BenchError
from tests.support.factories import SETTINGS, policy, view
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decider import Decider
from webhook.core.admission.decision import Decision
from webhook.core.admission.handler import admit
from webhook.core.admission.review import decode_review
from webhook.core.decision_input import facts_of

pytestmark = pytest.mark.lab

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


def decide_with(cache: DecisionCache) -> Callable[[bytes], Decision]:
    decider = Decider(SETTINGS, cache)
    return lambda body: admit(body, decider, SEEN).decision


def test_each_pod_of_a_distinct_template_misses_the_cache_and_is_patched() -> None:
    cache = DecisionCache()
    core.require_misses(decide_with(cache), reviews.distinct_templates())
    assert len(cache) < reviews.DISTINCT_TEMPLATES / 2


def test_pods_of_one_template_are_rejected_where_each_must_miss_the_cache() -> None:
    with pytest.raises(BenchError, match="63 were found in the cache and 0 were not patched"):
        core.require_misses(decide_with(DecisionCache()), reviews.variants(reviews.tekton()))


def test_pods_without_a_patch_are_rejected_where_each_must_be_patched() -> None:
    bodies = reviews.variants(reviews.in_namespace("kube-system"), 2)
    with pytest.raises(BenchError, match="0 were found in the cache and 2 were not patched"):
        core.require_misses(decide_with(DecisionCache()), bodies)


def test_variants_have_the_same_cache_key() -> None:
    found = [decode_review(body).request.pod for body in reviews.variants(reviews.tekton())]
    assert len({msgspec.json.encode(facts_of(pod)) for pod in found}) == 1
