"""Tests of the review handler and its decoder: every review is answered, every pod allowed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from tests.support.both_ways import admit_both_ways
from tests.support.factories import (
    SETTINGS,
    UID,
    Json,
    container,
    mutate_pod,
    pod,
    policy,
    review,
    view,
)
from tests.support.reviews import make_request
from webhook.core.admission.handler import Answer, UnreadableReviewError
from webhook.core.admission.review import decode_review
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.patch.edits import Edit
from webhook.core.patch.self_check import PatchError
from webhook.core.pod import OwnerReference
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies import REMEDIES

SEEN = view(policy())
QUICK = container("prepare", "/entrypoint")


def ask(body: Json | bytes, seen: Snapshot = SEEN) -> tuple[Answer, Json]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = admit_both_ways(raw, seen, SETTINGS)
    return answer, json.loads(answer.body)


def unpatched(body: Json | bytes, seen: Snapshot = SEEN) -> tuple[Answer, Json]:
    """Ask, and check that the answer admits the pod unchanged."""
    answer, found = ask(body, seen)
    assert found["kind"] == "AdmissionReview"
    assert found["response"]["uid"] == UID
    assert found["response"]["allowed"] is True
    assert "patch" not in found["response"]
    assert "patchType" not in found["response"]
    return answer, found


def test_a_review_is_answered_with_a_patch_that_settles_the_pod() -> None:
    document = pod(QUICK)
    answer, found = ask(review(document))
    response = found["response"]
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert (response["uid"], response["allowed"]) == (UID, True)
    assert response["patchType"] == "JSONPatch"
    operations = json.loads(base64.b64decode(response["patch"]))
    assert jsonpatch.apply_patch(document, operations) == mutate_pod(document, SEEN)
    assert operations == list(answer.decision.operations)
    assert response["auditAnnotations"] == {"applied": "p/postInitSleep[prepare]=Applied"}
    assert "warnings" not in response
    assert answer.error is None
    assert answer.request is not None
    assert answer.request.uid == UID


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"\xff\xfe",
        b'{"request": null}',
        b'{"request": {}}',
        b'{"request": {"uid": 5}}',
        b'{"request": {"uid": "\xff"}}',
        b"[" * 200_000,
        b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
def test_a_body_without_a_uid_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadableReviewError, match="not an AdmissionReview"):
        admit_both_ways(body, SEEN, SETTINGS)


@pytest.mark.parametrize("rest", [b"", b"} trailing", b',"object":' + b"[" * 200_000])
def test_a_malformed_body_with_a_uid_at_its_head_is_answered(rest: bytes) -> None:
    head = b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"%s"'
    unpatched(head % UID.encode() + rest)


@pytest.mark.parametrize(
    ("version", "answered"),
    [
        ("admission.k8s.io/v1beta1", "admission.k8s.io/v1beta1"),
        ("admission.k8s.io/v2", "admission.k8s.io/v2"),
        ("v1", "admission.k8s.io/v1"),
        ("", "admission.k8s.io/v1"),
    ],
)
def test_a_review_of_another_version_is_answered_in_that_version(
    version: str, answered: str
) -> None:
    answer, found = unpatched({**review(pod(QUICK)), "apiVersion": version})
    assert [o.reason for o in answer.decision.outcomes] == [Reason.UNSUPPORTED_REVIEW]
    assert found["apiVersion"] == answered


SERVICES = {"group": "", "version": "v1", "resource": "services"}
METRICS = {"group": "metrics.k8s.io", "version": "v1beta1", "resource": "pods"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"operation": 5}, Reason.UNSUPPORTED_REVIEW),
        ({"namespace": []}, Reason.UNSUPPORTED_REVIEW),
        ({"resource": "pods"}, Reason.UNSUPPORTED_REVIEW),
        ({"operation": "UPDATE"}, Reason.NOT_POD_CREATE),
        ({"operation": "DELETE", "object": None}, Reason.NOT_POD_CREATE),
        ({"subResource": "ephemeralcontainers"}, Reason.NOT_POD_CREATE),
        ({"resource": SERVICES}, Reason.NOT_POD_CREATE),
        ({"resource": METRICS}, Reason.NOT_POD_CREATE),
        ({"resource": {}}, Reason.NOT_POD_CREATE),
        ({"object": None}, Reason.MALFORMED_POD),
        ({"object": "pod"}, Reason.MALFORMED_POD),
        ({"object": pod(QUICK | {"command": "/entrypoint"})}, Reason.MALFORMED_POD),
        ({"object": pod(QUICK | {"command": [5]})}, Reason.MALFORMED_POD),
        ({"object": pod(QUICK | {"volumeMounts": {}})}, Reason.MALFORMED_POD),
        ({"object": pod(QUICK | {"resources": {"limits": []}})}, Reason.MALFORMED_POD),
        ({"object": pod(initContainers={})}, Reason.MALFORMED_POD),
        ({"object": pod(volumes="all")}, Reason.MALFORMED_POD),
        ({"object": pod(nodeSelector=["a"])}, Reason.MALFORMED_POD),
        ({"object": {"metadata": {"annotations": {"a": 1}}, "spec": {}}}, Reason.MALFORMED_POD),
        ({"object": {"metadata": {}, "spec": []}}, Reason.MALFORMED_POD),
    ],
)
def test_a_review_that_creates_no_valid_pod_is_allowed(fields: Json, reason: Reason) -> None:
    answer, found = unpatched(review(pod(QUICK), **fields))
    assert [o.reason for o in answer.decision.outcomes] == [reason]
    assert answer.error is None
    assert found["apiVersion"] == "admission.k8s.io/v1"
    assert bool(found["response"].get("warnings")) is reason.warns


@pytest.mark.parametrize("text", [b"\xff", b"\xed\xa0\x80", b"\xc0\x80"])
@pytest.mark.parametrize(
    "field",
    [
        {"name": "TEXT"},
        {"args": ["TEXT"]},
        {"env": [{"name": "TEXT"}]},
        {"volumeMounts": [{"name": "TEXT", "mountPath": "/x"}]},
        {"resources": {"limits": {"TEXT": "1"}}},
    ],
    ids=lambda field: next(iter(field)),
)
def test_a_pod_that_is_not_utf_8_is_left_unchanged(field: Json, text: bytes) -> None:
    document = pod({**container("a", "/a"), **field})
    body = json.dumps(review(document)).encode()
    assert ask(body)[0].decision.patch
    answer, _ = unpatched(body.replace(b"TEXT", text))
    assert [o.reason for o in answer.decision.outcomes] == [Reason.UNSUPPORTED_REVIEW]
    assert answer.error is None


@pytest.mark.parametrize(
    "document",
    [
        b"[" * 200_000 + b"]" * 200_000,
        b'{"metadata":{},"spec":{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}}",
    ],
    ids=["the pod", "a field that is not read"],
)
def test_a_pod_that_is_nested_too_deeply_is_allowed_or_unsupported(document: bytes) -> None:
    body = json.dumps(review("POD")).encode().replace(b'"POD"', document)
    with suppress(UnreadableReviewError):
        unpatched(body)


class BrokenClasses(dict[str, RuntimeClassInfo]):
    """RuntimeClasses that cannot be read."""

    def get(self, name: str, _default: Any = None, /) -> Any:
        raise ZeroDivisionError(f"no {name}")


def broken_view(document: SettlePolicy) -> Snapshot:
    return Snapshot(policies=PolicySet([document]), runtime_classes=BrokenClasses())


def test_an_internal_error_admits_the_pod_unchanged() -> None:
    document = policy(remedies={"runtimeClass": {"name": "fast"}, "postInitSleep": {}})
    answer, found = unpatched(review(pod(QUICK)), broken_view(document))
    (outcome,) = answer.decision.outcomes
    assert outcome.reason is Reason.INTERNAL_ERROR
    assert isinstance(answer.error, ZeroDivisionError)
    (warning,) = found["response"]["warnings"]
    assert warning == (
        "podsettle: InternalError: the pod was admitted unchanged: ZeroDivisionError('no fast')"
    )


def test_a_patch_that_fails_the_self_check_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def intrude(_pod: Any, _settings: Any, _context: Any, patch: Any) -> Iterator[Outcome]:
        patch.put_init_container({"name": "intruder"}, "first")
        yield Outcome(Reason.APPLIED, container="prepare", changed=True)

    intruding = replace(REMEDIES["postInitSleep"], apply=intrude)
    monkeypatch.setitem(REMEDIES, "postInitSleep", intruding)
    answer, _ = unpatched(review(pod(QUICK)), view(policy()))
    assert [o.reason for o in answer.decision.outcomes] == [Reason.INTERNAL_ERROR]
    assert isinstance(answer.error, PatchError)


def test_a_patch_with_an_undeclared_edit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    undeclared = replace(REMEDIES["postInitSleep"], edits=frozenset({Edit.COMMAND}))
    monkeypatch.setitem(REMEDIES, "postInitSleep", undeclared)
    answer, _ = unpatched(review(pod(QUICK)), view(policy()))
    assert [o.reason for o in answer.decision.outcomes] == [Reason.INTERNAL_ERROR]
    assert "undeclared edits: InitContainer, Mount, Volume" in str(answer.error)
    shell = pod(container("prepare", "/bin/sh", "-c", "x"))
    assert ask(review(shell), view(policy()))[0].decision.operations


@pytest.mark.parametrize(("length", "fits"), [(500_000, True), (650_000, True), (660_000, False)])
def test_a_pod_that_etcd_may_refuse_with_the_patch_is_left_unchanged(
    length: int, fits: bool
) -> None:
    """The API server would refuse to create it, which is a denial by podsettle."""
    document = pod(container("c", "/c", "x" * length))
    # Only the pod counts, not the rest of the review.
    answer, _ = ask(json.dumps(review(document)).encode().ljust(2_000_000))
    assert bool(answer.decision.patch) is fits
    if not fits:
        assert [outcome.reason for outcome in answer.decision.outcomes] == [Reason.POD_TOO_LARGE]
        assert "etcd could refuse the pod" in answer.decision.outcomes[0].message


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
