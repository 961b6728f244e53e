"""The envelope of an AdmissionReview: the request with its pod, and the uid of the request.

Fields: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from webhook.core.pod import DECODE_ERRORS, ObjectName, Pod, WireStruct, decode_pod

REVIEW_API_VERSION = "admission.k8s.io/v1"

MAX_VALUES = 50_000
"""The maximum number of values in a pod that is decoded, counted by their commas. A client can send
an item of a list in 3 bytes, such as `{},`. To decode it takes up to 150 bytes and a third of a
microsecond. Real pods have a comma in 30 bytes, and etcd stores no object of more than 1.5 MiB."""

_encode = msgspec.json.Encoder().encode


class GroupVersionResource(WireStruct):
    """`request.resource`."""

    group: str = ""
    version: str = ""
    resource: str = ""


T = TypeVar("T", bound=Pod | Raw | None)


class Request(WireStruct, Generic[T]):
    """`request` of an AdmissionReview."""

    uid: str
    resource: GroupVersionResource = msgspec.field(default_factory=GroupVersionResource)
    sub_resource: str | None = None
    namespace: str | None = None
    operation: str = ""
    object: T = msgspec.field(default=None)  # type: ignore[assignment]
    dry_run: bool | None = None
    """Whether the API server stores nothing, so that side effects would be wrong."""

    @property
    def is_too_large(self) -> bool:
        """Whether the object would take too long to decode. If so, it is undecoded."""
        return isinstance(self.object, Raw) and _has_too_many_values(bytes(self.object))

    @property
    def pod(self) -> Pod:
        """The object as a pod. Raises one of DECODE_ERRORS if the object cannot be decoded."""
        pod: Pod | Raw | None = self.object
        return pod if isinstance(pod, Pod) else decode_pod(pod or b"null")

    @property
    def pod_name(self) -> str:
        """The pod's name for messages. Empty if the name cannot be read.

        Of an undecoded object only the name is decoded, because the object may be too large.
        """
        pod: Pod | Raw | None = self.object
        if isinstance(pod, Pod):
            return pod.name
        try:
            return _decode_named(pod or b"null").metadata.for_messages
        except DECODE_ERRORS:
            return ""


class _Named(WireStruct):
    metadata: ObjectName = msgspec.field(default_factory=ObjectName)


_decode_named = msgspec.json.Decoder(_Named).decode


class Review(WireStruct, Generic[T]):
    """An AdmissionReview of any version."""

    request: Request[T]
    api_version: str = ""
    kind: str = ""


_decode_with_pod = msgspec.json.Decoder(Review[Pod | None]).decode
_decode_without_pod = msgspec.json.Decoder(Review[Raw]).decode


def decode_review(body: bytes) -> Review[Any]:
    """Decode a review from JSON.

    The pod is decoded in the same pass. If the pod alone is malformed, the review is returned with
    the undecoded object, and `Request.pod` raises the error. The object is also left undecoded if
    it may be too large.

    Raises one of DECODE_ERRORS if the body is not UTF-8, not JSON or not a review.
    """
    # msgspec does not check the encoding of what it skips or leaves undecoded. It does check its
    # syntax, escapes and surrogates. For ASCII this takes a thousandth of a decision.
    if not body.isascii():
        body.decode()
    # A value and its comma have two bytes. To count the commas takes half as long as to decode.
    if len(body) > 2 * MAX_VALUES and _has_too_many_values(body):
        return _decode_without_pod(body)
    try:
        return _decode_with_pod(body)
    except DECODE_ERRORS:
        return _decode_without_pod(body)


def object_bytes(body: bytes) -> int:
    """Return the length of the object in a review, as the client wrote it."""
    return len(bytes(_decode_without_pod(body).request.object))


def _has_too_many_values(json: bytes) -> bool:
    # A comma inside a string counts too.
    return json.count(b",") > MAX_VALUES


class _RequestUid(WireStruct):
    uid: str


class _ReviewUid(WireStruct):
    request: _RequestUid


_decode_uid = msgspec.json.Decoder(_ReviewUid).decode

_UID_PATTERN = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([-0-9A-Za-z]{1,128})"')
_UID_SEARCH_BYTES = 1024
"""The number of bytes to search. The API server writes the uid as the first field of the
request."""


def uid_of(body: bytes) -> str | None:
    """Return the uid in a body that cannot be decoded as a Review, or None if there is no uid.

    If the body is truncated, nested too deeply or no JSON, the function searches its first bytes
    for the uid. The API server writes the uid before the object.
    """
    try:
        return _decode_uid(body).request.uid
    except DECODE_ERRORS:
        match = _UID_PATTERN.search(body[:_UID_SEARCH_BYTES])
        return match[1].decode() if match else None


def encode_creation(pod: object, namespace: str) -> bytes:
    """Return the review that the API server would send for the creation of this pod.

    `pod` is an object, or its JSON as `msgspec.Raw`.
    """
    review = {
        "apiVersion": REVIEW_API_VERSION,
        "kind": "AdmissionReview",
        "request": {
            "uid": "00000000-0000-0000-0000-000000000000",
            "operation": "CREATE",
            "namespace": namespace,
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": pod,
        },
    }
    return _encode(review)
