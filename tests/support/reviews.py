"""AdmissionReviews as the API server sends them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import yaml

from tests.support.paths import DATA
from webhook.core.admission.review import Request, decode_review, encode_creation

PODS = sorted((DATA / "pods").glob("*.yaml"))
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def load_pod(path: Path) -> dict[str, Any]:
    """A fixture pod."""
    pod: dict[str, Any] = yaml.safe_load(path.read_text())
    return pod


def review(pod: dict[str, Any], **request: Any) -> dict[str, Any]:
    """The review of a pod's creation; keywords replace parts of the request."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": UID,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": pod.get("metadata", {}).get("namespace", "default"),
            "operation": "CREATE",
            "object": pod,
            "oldObject": None,
            "dryRun": False,
        }
        | request,
    }


def make_request(pod: object, namespace: str) -> Request[Any]:
    """The decoded request of a pod's creation."""
    return decode_review(encode_creation(pod, namespace)).request


def patch_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The operations in an answered review; none where it carries no patch."""
    response = answer["response"]
    if "patch" not in response:
        return []
    assert response["patchType"] == "JSONPatch"
    operations: list[dict[str, Any]] = json.loads(base64.b64decode(response["patch"]))
    return operations
