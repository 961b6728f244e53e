"""Patches of a pod, and the pod after them."""

from __future__ import annotations

from collections.abc import Collection

import jsonpatch

from tests.support.factories import Json, container
from webhook.core.admission.review import make_request
from webhook.core.patch.builder import PodPatch
from webhook.core.pod_facts import facts_of

HELPER = container("podsettle-linger", "/linger")
GATE = container("podsettle-kubelet-gate", "/linger")
OWN = "podsettle.dev/applied"
CHANGE_POLICY = "/spec/securityContext/seLinuxChangePolicy"
RUNTIME_CLASS = "/spec/runtimeClassName"
SETTABLE_FIELDS = frozenset({CHANGE_POLICY, RUNTIME_CLASS})


def patch_of(document: Json) -> PodPatch:
    return PodPatch(facts_of(make_request(document, "ci").pod))


def applied(
    document: Json, patch: PodPatch, settable_fields: Collection[str] = SETTABLE_FIELDS
) -> Json:
    after: Json = jsonpatch.apply_patch(document, list(patch.verified_operations(settable_fields)))
    return after
