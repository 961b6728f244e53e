"""Tests that no list, map or text of a pod delays other reviews, or makes its answer long."""

from __future__ import annotations

import copy
import json

import jsonpatch
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.inputs import render
from tests.fuzz.pods import (
    LONG_FIELDS,
    POD,
    long_value,
    pod_with_long_field,
    reviewed,
    set_field,
)
from tests.fuzz.targets import SEEN
from tests.support.both_ways import admit_both_ways
from tests.support.complexity import cpu_ratio
from tests.support.examples import examples
from tests.support.factories import SETTINGS, Json, container, pod, review
from tests.support.strategies import SETTINGS as SETTINGS_OF_OPERATORS
from tests.support.strategies import VIEWS
from webhook.core.admission.decider import Decider, OperatorSettings
from webhook.core.admission.handler import admit
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import Reason

LABELS = ("metadata labels", '"k{}":"v",')
LENGTH_BYTES = 60_000
RATIO = 3.0
"""Labels are decoded once. A field that a decision compares or copies may take longer."""


def body_of(path: str, item: str) -> bytes:
    times = LENGTH_BYTES // (len(item) + 3 * item.count("{}"))
    return render(reviewed(pod_with_long_field(path, item, times)))


def decide(body: bytes) -> None:
    admit(body, Decider(SETTINGS), SEEN)


@pytest.mark.parametrize(("path", "item"), LONG_FIELDS)
def test_a_long_field_takes_no_longer_than_labels_of_the_same_length(path: str, item: str) -> None:
    body, labels = body_of(path, item), body_of(*LABELS)
    # A busy machine disturbs some measurements, and not all of them.
    assert any(cpu_ratio(decide, body, labels) < RATIO for _ in range(3))


def in_all_containers(path: str) -> list[str]:
    """Return the paths of a field of a container in all containers, or the path itself."""
    *_, containers, index, field = ["", "", *path.split(" ", 3)][-4:]
    if containers not in ("initContainers", "containers") or index != "0":
        return [path]
    places = ("initContainers 0", "initContainers 1", "containers 0")
    return [f"spec {place} {field}" for place in places]


@examples(100)
@given(
    field=st.sampled_from(LONG_FIELDS),
    times=st.integers(100, 2_000),
    seen=st.just(SEEN) | VIEWS,
    options=SETTINGS_OF_OPERATORS,
)
@example(("spec containers 0 resources limits", '"k{}":"1",'), 2_000, SEEN, SETTINGS)
def test_an_answer_is_as_long_as_what_it_copies(
    field: tuple[str, str], times: int, seen: Snapshot, options: OperatorSettings
) -> None:
    document = copy.deepcopy(POD)
    for path in in_all_containers(field[0]):
        set_field(document, path, long_value(*field, times))
    answer = admit_both_ways(json.dumps(review(document)).encode(), seen, options)
    after = jsonpatch.apply_patch(document, answer.decision.operations)
    changed, copied = 0, 0
    for key in ("initContainers", "containers"):
        before = {each.get("name"): each for each in document["spec"].get(key) or ()}
        for each in after["spec"].get(key) or ():
            received: Json = before.get(each.get("name"), {})
            changed += each != received
            if each.get("command") != received.get("command"):
                copied += len(msgspec.json.encode(received.get("command")))
    assert len(answer.body) <= 4 / 3 * copied + 2_048 * changed + 16_384


def test_a_pod_of_very_many_values_is_not_decoded() -> None:
    document = pod(container("a", "/a", args=["x"] * 49_000))
    assert admit_both_ways(json.dumps(review(document)).encode(), SEEN, SETTINGS).decision.patch
    document = pod(container("a", "/a", args=["x"] * 50_001))
    answer = admit_both_ways(json.dumps(review(document)).encode(), SEEN, SETTINGS)
    assert [each.reason for each in answer.decision.outcomes] == [Reason.POD_TOO_LARGE]
    # The limit is that of the pod, not that of the review.
    body = {**review(pod(container("a", "/a"))), "x": ["x"] * 50_001}
    assert admit_both_ways(json.dumps(body).encode(), SEEN, SETTINGS).decision.patch
