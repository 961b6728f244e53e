"""The reviews of the benchmark."""

from __future__ import annotations

import msgspec
import pytest

from bench import reviews
from webhook.core.admission.review import decode_review
from webhook.core.decision_input import facts_of

pytestmark = pytest.mark.lab


def keys(bodies: list[bytes]) -> set[bytes]:
    """Return the cache keys of the pods."""
    return {msgspec.json.encode(facts_of(decode_review(body).request.pod)) for body in bodies}


@pytest.mark.parametrize("kilobytes", [8, 60, 250])
def test_variants_have_similar_sizes_unique_names_and_one_template(kilobytes: int) -> None:
    bodies = reviews.variants(reviews.of_size(kilobytes))
    assert bodies == reviews.variants(reviews.of_size(kilobytes))
    assert len(set(bodies)) == reviews.VARIANTS >= 64
    assert all(kilobytes * 950 < len(body) < kilobytes * 1150 for body in bodies)
    found = [decode_review(body).request for body in bodies]
    assert len({request.uid for request in found}) == len(bodies)
    assert len({request.pod.name for request in found}) == len(bodies)
    assert len(keys(bodies)) == 1


def test_distinct_templates_have_no_cache_key_in_common() -> None:
    bodies = reviews.distinct_templates()
    assert len(keys(bodies)) == len(bodies) == reviews.DISTINCT_TEMPLATES
