"""What is read of a review beside the pod."""

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
def test_a_pod_has_a_name_for_people(metadata: Json | None, name: str) -> None:
    assert make_request({"metadata": metadata, "spec": {}}, "ci").pod.name == name


@pytest.mark.parametrize("document", [None, 7, [], {}, {"spec": {"containers": 7}}])
def test_a_review_is_read_whatever_its_object_is(document: object) -> None:
    request = make_request(document, "ci")
    assert (request.operation, request.namespace) == ("CREATE", "ci")
    with pytest.raises(DECODE_ERRORS):
        _ = request.pod


@pytest.mark.parametrize("field", ["volumeMounts", "volumeDevices"])
@pytest.mark.parametrize("value", ["x", 7, {}, [7]])
def test_what_is_decoded_when_it_is_asked_for_may_be_unreadable(field: str, value: object) -> None:
    received = make_request(pod(container("a", **{field: value})), "ci").pod
    (found,) = received.spec.init_containers or [Container()]
    with pytest.raises(DECODE_ERRORS):
        _ = found.mounts, found.devices
