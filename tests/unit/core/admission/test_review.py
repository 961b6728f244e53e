"""Tests of the review envelope and of fields that are decoded lazily."""

from __future__ import annotations

import json

import pytest

from tests.support.factories import Json, pod, review
from tests.support.reviews import make_request
from webhook.core.admission.review import decode_review
from webhook.core.pod import OwnerReference


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


@pytest.mark.parametrize("sent", [True, False, None])
def test_review_says_whether_it_is_a_dry_run(sent: bool | None) -> None:
    assert decode_review(json.dumps(review(pod(), dryRun=sent)).encode()).request.dry_run is sent
    assert make_request(pod(), "ci").dry_run is None


def test_pod_names_the_controller_that_owns_it() -> None:
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "build",
        "uid": "705ab4f5",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    document = pod()
    document["metadata"]["ownerReferences"] = [owner, {"kind": "Other", "controller": None}]
    metadata = make_request(document, "ci").pod.metadata
    assert metadata is not None
    assert metadata.owner_references == [
        OwnerReference("batch/v1", "Job", "build", "705ab4f5", True),
        OwnerReference(kind="Other"),
    ]
