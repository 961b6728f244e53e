"""The reviews that are sent."""

from __future__ import annotations

import msgspec
import pytest

from bench import reviews
from tests.support.factories import SETTINGS, policy, view
from webhook.core.admission.cache import Memory
from webhook.core.admission.cache_key import likeness
from webhook.core.admission.handler import admit
from webhook.core.admission.review import decode_review

SEEN = view(policy())


@pytest.mark.parametrize("kilobytes", [2, 8, 60, 250])
def test_variants_are_of_one_size_and_no_two_alike(kilobytes: int) -> None:
    bodies = reviews.variants(reviews.of_size(kilobytes))
    assert len(set(bodies)) == reviews.VARIANTS >= 64
    assert all(kilobytes * 950 < len(body) < kilobytes * 1150 for body in bodies)
    found = [decode_review(body).request for body in bodies]
    assert len({request.uid for request in found}) == len(bodies)
    assert len({request.pod.name for request in found}) == len(bodies)


def test_every_run_sends_the_same() -> None:
    assert reviews.variants(reviews.tekton()) == reviews.variants(reviews.tekton())


def test_a_variant_is_one_pod() -> None:
    body = reviews.variants(reviews.tekton(), 1)[0]
    request = decode_review(body).request
    labels = request.pod.labels
    assert labels
    assert request.pod.name == f"{labels['tekton.dev/taskRun']}-pod"


def test_init_containers_have_names_of_their_own() -> None:
    review = reviews.encode(reviews.with_init_containers(40))
    containers = decode_review(review).request.pod.spec.init_containers or ()
    assert len({container.name for container in containers}) == 40


def test_pods_that_are_not_alike_are_more_than_is_remembered() -> None:
    memory = Memory()
    bodies = reviews.distinct_templates()
    first, *_ = [
        admit(body, SEEN.policies, SEEN, SETTINGS, memory=memory).decision for body in bodies
    ]
    assert first.operations
    assert admit(bodies[0], SEEN.policies, SEEN, SETTINGS, memory=memory).decision is not first


def test_the_pods_of_one_task_are_alike() -> None:
    found = [decode_review(body).request.pod for body in reviews.variants(reviews.tekton())]
    assert len({msgspec.json.encode(likeness(pod, wraps_containers=False)) for pod in found}) == 1
