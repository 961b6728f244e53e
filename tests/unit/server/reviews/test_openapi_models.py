"""The AdmissionReview in the OpenAPI document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.reviews import PODS, load_pod, review
from tests.support.server_fixtures import SETTINGS, make_app
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.admission.decider import Decider
from webhook.core.admission.handler import admit
from webhook.server.reviews.openapi_models import AdmissionReview


def test_openapi_document_describes_requests_and_answers(source: ManifestsSource) -> None:
    document = make_app(source).openapi()
    operation = document["paths"]["/mutate"]["post"]
    schema = {"$ref": "#/components/schemas/AdmissionReview"}
    assert operation["requestBody"]["content"]["application/json"]["schema"] == schema
    assert operation["responses"]["200"]["content"]["application/json"]["schema"] == schema
    statuses = {"200", "400", "405", "408", "413", "415"}
    assert set(operation["responses"]) == statuses
    assert set(document["paths"]["/mutate"]) == {"post"}
    assert "/mutate/" not in document["paths"]
    defined = document["components"]["schemas"]
    assert set(defined["AdmissionReview"]["required"]) == {"apiVersion", "kind"}
    assert {"AdmissionRequest", "AdmissionResponse"} <= set(defined)


@pytest.mark.parametrize("path", PODS, ids=lambda path: path.stem)
def test_documented_schema_contains_every_member_of_an_answer(
    source: ManifestsSource, path: Path
) -> None:
    document = review(load_pod(path))
    AdmissionReview.model_validate(document)
    view = source.view
    answer = json.loads(admit(json.dumps(document).encode(), Decider(SETTINGS), view).body)
    validated = AdmissionReview.model_validate(answer)
    assert validated.model_dump(by_alias=True, exclude_none=True) == answer
