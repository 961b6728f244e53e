"""Tests of the review envelope and of fields that are decoded lazily."""

from __future__ import annotations

import pytest

from tests.support.factories import Json, container, pod
from webhook.core.admission.review import make_request
from webhook.core.pod import DECODE_ERRORS, Container


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"name": "a"}, "a"),
        ({"generateName": "build-x7"}, "build-x7*"),
        ({"name": "a", "generateName": "b-"}, "a"),
        ({}, ""),
        (None, ""),
    ],
)
def test_a_generated_name_ends_in_a_star(metadata: Json | None, name: str) -> None:
    assert make_request({"metadata": metadata, "spec": {}}, "ci").pod.name == name


@pytest.mark.parametrize("document", [None, 7, [], {}, {"spec": {"containers": 7}}])
def test_a_review_with_a_malformed_object_is_decoded(document: object) -> None:
    request = make_request(document, "ci")
    assert (request.operation, request.namespace) == ("CREATE", "ci")
    with pytest.raises(DECODE_ERRORS):
        _ = request.pod


@pytest.mark.parametrize("field", ["volumeMounts", "volumeDevices"])
@pytest.mark.parametrize("value", ["x", 7, {}, [7]])
def test_a_malformed_undecoded_field_raises_when_it_is_read(field: str, value: object) -> None:
    received = make_request(pod(container("a", **{field: value})), "ci").pod
    (found,) = received.spec.init_containers or [Container()]
    with pytest.raises(DECODE_ERRORS):
        _ = found.mounts, found.devices
