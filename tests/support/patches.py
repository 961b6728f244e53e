"""Patches of a pod, and the pod after them."""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Collection, Iterable
from copy import deepcopy
from typing import Any

import jsonpatch

from tests.support.factories import Decided, Json, container, decide_pod, reasons
from tests.support.reviews import make_request
from webhook.core.admission.decision import Decision
from webhook.core.decision_input import facts_of
from webhook.core.patch.builder import PodPatch
from webhook.core.patch.received_command import encode_template
from webhook.core.policy.snapshot import Snapshot

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
    """Return a pod after a patch, with its commands in their places."""
    template = encode_template(patch.verified_operations(settable_fields))
    filled = template.fill(template.commands_of(make_request(document, "ci").pod))
    after: Json = jsonpatch.apply_patch(document, a2b_base64(filled).decode())
    return after


NOTES = frozenset({"podsettle.dev/summary", "podsettle.dev/skipped"})
"""The annotations that say to people what podsettle did."""


def without_notes(operations: Iterable[Json]) -> list[Json]:
    """Return the operations of a version of podsettle that does not know the notes for people."""
    kept = []
    for operation in deepcopy([*operations]):
        path = operation["path"]
        if path in ("/metadata", "/metadata/annotations"):
            value = operation["value"]
            annotations = value["annotations"] if path == "/metadata" else value
            for note in NOTES & annotations.keys():
                del annotations[note]
            if annotations:
                kept.append(operation)
        elif path.removeprefix("/metadata/annotations/").replace("~1", "/") not in NOTES:
            kept.append(operation)
    return kept


def changes(decision: Decided | Decision) -> list[Json]:
    """Return the operations of a decision that change more than the notes for people."""
    return without_notes(decision.operations)


def only_reason(document: object, seen: Snapshot, **options: Any) -> str:
    """Return the one reason of a decision. Check that it changes the pod only if it is Applied."""
    decision = decide_pod(document, seen, **options)
    (reason,) = reasons(decision)
    assert bool(changes(decision)) is reason.endswith("Applied"), (document, reason)
    return reason
