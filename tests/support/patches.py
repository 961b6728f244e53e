"""Patches of a pod, and the pod after them."""

from __future__ import annotations

import jsonpatch

from tests.support.factories import Json, container
from webhook.core.admission.review import make_request
from webhook.core.patch.builder import PodPatch
from webhook.core.patch.verify import VerifiedShapes

HELPER = container("podsettle-linger", "/linger")
GATE = container("podsettle-kubelet-gate", "/linger")
OWN = "podsettle.dev/applied"


def patch_of(document: Json) -> PodPatch:
    return PodPatch(make_request(document, "ci").pod)


def applied(document: Json, patch: PodPatch) -> Json:
    after: Json = jsonpatch.apply_patch(document, list(patch.verified_operations(VerifiedShapes())))
    return after
