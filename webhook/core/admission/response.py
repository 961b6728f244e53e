"""The answer to an AdmissionReview, as JSON: the patch, warnings and audit annotations."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from webhook.core.admission.review import REVIEW_API_VERSION
from webhook.core.constants import DNS_LABEL_NAME
from webhook.core.printable import list_first
from webhook.core.reasons import Outcome, Reason

MAX_WARNING_CHARACTERS = 256
"""The API server may cut longer warnings (admission.k8s.io/v1 `response.warnings`)."""
_MAX_WARNINGS, _MAX_WARNINGS_BYTES = 15, 4_000
"""The maximum number of warnings, and their maximum size as JSON, beside the line that counts the
omitted ones. With that line they stay below the API server's limit of 4,096 characters for all
warnings."""
_MAX_AUDIT_ANNOTATION_CHARACTERS = 8_192
"""Less than the API server's own bound for the audit annotations of a ValidatingAdmissionPolicy,
which is 10 KiB."""

_encode = msgspec.json.Encoder().encode


class _Texts(msgspec.Struct, rename="camel", omit_defaults=True):
    """The fields of an AdmissionResponse that people read."""

    warnings: list[str] = []
    audit_annotations: dict[str, str] = {}


def warnings_for(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the warnings that `kubectl` prints: one line per remedy, reason and sentence.

    Only reasons that a person should act on give a warning.
    """
    groups: dict[tuple[str, Reason, str], list[str]] = {}
    for outcome in outcomes:
        if outcome.reason.warns:
            key = (outcome.remedy, outcome.reason, outcome.sentence)
            groups.setdefault(key, []).append(outcome.container)
    warnings: list[str] = []
    size = 0
    for key, names in groups.items():
        warning = _warning(*key, names)
        size += len(_encode(warning))
        if len(warnings) == _MAX_WARNINGS or size > _MAX_WARNINGS_BYTES:
            return [*warnings, f"podsettle: {len(groups) - len(warnings)} more"]
        warnings.append(warning)
    return warnings


def audit_annotations_for(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Return the audit annotations `applied` and `skipped`, which list the outcomes."""
    applied: list[str] = []
    skipped: list[str] = []
    for outcome in outcomes:
        # An entry is `policy/remedy[container]=Reason`, without the parts that are empty. A name
        # that the API server would refuse is left out: it can be any text, a megabyte long.
        policy, remedy = outcome.policy, outcome.remedy
        subject = f"{policy}/{remedy}" if policy and remedy else policy or remedy
        if outcome.container:
            is_valid = DNS_LABEL_NAME.fullmatch(outcome.container)
            subject = f"{subject}[{outcome.container if is_valid else '?'}]"
        entry = f"{subject}={outcome.reason}" if subject else outcome.reason
        (applied if outcome.changed else skipped).append(entry)
    annotations = {}
    if applied:
        annotations["applied"] = " ".join(applied)[:_MAX_AUDIT_ANNOTATION_CHARACTERS]
    if skipped:
        annotations["skipped"] = " ".join(skipped)[:_MAX_AUDIT_ANNOTATION_CHARACTERS]
    return annotations


def encode_texts(warnings: list[str], audit_annotations: dict[str, str]) -> bytes:
    """Return a JSON fragment with the members that follow the patch in a response.

    The fragment begins with a comma. It is empty if there are no texts.
    """
    members = _encode(_Texts(warnings, audit_annotations))[1:-1]
    return b"," + members if members else b""


def encode_review(api_version: str, uid: str, patch: bytes, texts_json: bytes) -> bytes:
    """Return a whole AdmissionReview that allows the pod.

    `patch` is `Decision.patch`, and `texts_json` comes from `encode_texts`.
    """
    prefix = (
        _RESPONSE_PREFIX if api_version is REVIEW_API_VERSION else _response_prefix(api_version)
    )
    uid_json = _encode(uid)
    if not patch:
        return b"".join((prefix, uid_json, _ALLOWED, texts_json, b"}}"))
    return b"".join((prefix, uid_json, _ALLOWED_WITH_PATCH, patch, b'"', texts_json, b"}}"))


_ALLOWED = b',"allowed":true'
_ALLOWED_WITH_PATCH = _ALLOWED + b',"patchType":"JSONPatch","patch":"'


def _response_prefix(api_version: str) -> bytes:
    """Return the JSON of a review up to the value of its uid."""
    version = _encode(api_version)
    return b'{"apiVersion":' + version + b',"kind":"AdmissionReview","response":{"uid":'


_RESPONSE_PREFIX = _response_prefix(REVIEW_API_VERSION)


def _warning(remedy: str, reason: Reason, sentence: str, containers: list[str]) -> str:
    """Return the text of one warning, which names at most three of the containers."""
    names = list_first([*filter(None, containers)], 3)
    subject = ": ".join(part for part in ("podsettle", remedy, str(reason), names) if part)
    text = f"{subject}: {sentence}"
    if len(text) <= MAX_WARNING_CHARACTERS:
        return text
    return text[: MAX_WARNING_CHARACTERS - 3] + "..."
