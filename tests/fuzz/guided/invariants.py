"""What must hold for any bytes: functions that raise an exception for a defect, and only then."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonpatch
import msgspec

from tests.fuzz.targets import SEEN, TARGETS
from tests.support.factories import SETTINGS, review, view
from tests.support.forbidden_changes import forbidden
from tests.support.reviews import PODS, load_pod
from webhook.cluster.manifest_loader import load_objects
from webhook.core.admission.decider import Decider
from webhook.core.admission.handler import UnreadableReviewError, admit
from webhook.core.constants import KIND
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.validation_errors import ManifestProblem
from webhook.core.policy.webhook_selectors import webhook_selectors
from webhook.core.preview.document import DocumentError
from webhook.core.preview.text_objects import iterate_objects
from webhook.kubeconfig.access import from_kubeconfig
from webhook.kubeconfig.credentials import AccessError
from webhook.kubeconfig.paths import KubeconfigPaths

_DECIDER = Decider(SETTINGS)
_UNREADABLE = object()


def check_review(body: bytes) -> None:
    """The pod is allowed, its patch applies, changes what it may, and is not repeated."""
    operations = _operations(body, SEEN)
    if operations is _UNREADABLE or not operations:
        return
    try:
        document = msgspec.json.decode(body)
    except msgspec.ValidationError:  # A number that no Python number can have, such as 1e999.
        return
    before = document["request"]["object"]
    after = jsonpatch.apply_patch(before, operations)
    changes = list(forbidden(before, after))
    assert not changes, changes
    document["request"]["object"] = after
    again = _operations(json.dumps(document).encode(), SEEN)
    assert not again, again


def check_policies(body: bytes) -> None:
    """Each policy has a problem or is in force, and a policy in force denies no pod."""
    try:
        objects, problems = load_objects(iterate_objects(body, "body"))
    except DocumentError as error:
        objects, problems = [], (ManifestProblem(error.source, error.line, error.message),)
    for problem in problems:
        assert str(problem)
    policies = [each.model for each in objects if each.kind == KIND]
    if not policies:
        return
    webhook_selectors(policies)
    seen = view(*policies)
    for pod in _PODS:
        _operations(pod, seen)


def check_kubeconfig(body: bytes) -> None:
    """A kubeconfig is read, or an error names its fault. Inputs with plugins are left out."""
    if b"exec" in body or b"auth-provider" in body or b"\\" in body:
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kubeconfig"
        path.write_bytes(body)
        with suppress(AccessError):
            from_kubeconfig(KubeconfigPaths(str(path), "--kubeconfig"))


def _operations(body: bytes, seen: Snapshot) -> Any:
    """The patch of a review, or `_UNREADABLE` for a body that is no review."""
    with suppress(UnreadableReviewError):
        answer = admit(body, _DECIDER, seen)
        if answer.error is not None:
            raise answer.error
        response = json.loads(answer.body)["response"]
        assert response["allowed"] is True
        return json.loads(base64.b64decode(response.get("patch", "W10=")))
    return _UNREADABLE


_PODS = [json.dumps(review(load_pod(path))).encode() for path in PODS[:3]]

INVARIANTS: Mapping[str, Callable[[bytes], object]] = {
    "reviews": check_review,
    "policies": check_policies,
    "workloads": TARGETS["preview"].run,
    "kubeconfigs": check_kubeconfig,
    "references": TARGETS["references"].run,
}
