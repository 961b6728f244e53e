"""The fields that the API server's plugins set in a pod before it calls webhooks.

A pod that names a RuntimeClass reaches podsettle with the nodeSelector, the tolerations and the
overhead of the class. A decision may depend on them: a class can restrict its pods to Windows. The
node selector of the namespace, an OpenShift project for example, is added too.

Sources: kubernetes `plugin/pkg/admission/runtimeclass/admission.go`, and `MergeTolerations` of
`pkg/util/tolerations`, the same in 1.33 to 1.37; openshift/kubernetes
`openshift-kube-apiserver/admission/scheduler/nodeenv/admission.go`; kubernetes
`plugin/pkg/admission/podnodeselector/admission.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.cluster.view import NO_SELECTOR
from webhook.core.remedies.runtime_class_rejection import conflict_with

_MAX_TOLERATIONS = 100
"""The maximum number of tolerations that are compared with each other. A client can send any
number. More of them are kept all."""


class ClassFields(NamedTuple):
    """What the API server does to a pod because of its RuntimeClass and its project."""

    spec: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    """The fields of `spec` that it changes, with their new values."""
    refusal: str = ""
    """Why it refuses the pod. Empty if it does not."""
    note: str = ""
    """What a preview assumes, for people. Empty if it assumes nothing."""


class _Toleration(msgspec.Struct, frozen=True, rename="camel"):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def covers(self, other: _Toleration) -> bool:
        """Return whether this one tolerates all that the other one does, as the API server says."""
        if self == other:
            return True
        any_key = not self.key and self.operator == "Exists"
        if (other.key != self.key and not any_key) or (self.effect and other.effect != self.effect):
            return False
        seconds, limit = other.toleration_seconds, self.toleration_seconds
        if (
            self.effect == "NoExecute"
            and limit is not None
            and (seconds is None or seconds > limit)
        ):
            return False
        if self.operator in ("", "Equal"):
            return other.operator == "Equal" and other.value == self.value
        return self.operator == "Exists"


class _Spec(msgspec.Struct, rename="camel"):
    runtime_class_name: str | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[dict[str, Any]] | None = None
    overhead: dict[str, Any] | None = None


class _Pod(msgspec.Struct):
    spec: _Spec


_decode_pod = msgspec.json.Decoder(_Pod).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def class_fields(
    pod: object, classes: Mapping[str, RuntimeClassInfo], project: Mapping[str, str] = NO_SELECTOR
) -> ClassFields:
    """Return the fields that the API server sets in a pod for its RuntimeClass and its project.

    `pod` is an object, or its JSON as `msgspec.Raw`. `project` is the project's node selector.
    Raises nothing: the API server cannot decode a malformed pod, so it sets nothing.
    """
    try:
        spec = (
            _decode_pod(pod) if isinstance(pod, msgspec.Raw) else msgspec.convert(pod, _Pod)
        ).spec
        fields = _class_fields(spec, classes) if spec.runtime_class_name else ClassFields()
        return _with_project(spec, fields, project) if project and not fields.refusal else fields
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ClassFields()


def _class_fields(spec: _Spec, classes: Mapping[str, RuntimeClassInfo]) -> ClassFields:
    """Return the fields for a pod with this `spec`. Raises ValidationError for a malformed one."""
    name = spec.runtime_class_name or ""
    selector, overhead = spec.node_selector or {}, spec.overhead or {}
    tolerations = spec.tolerations or []
    found = classes.get(name)
    if found is None:
        note = (
            f"RuntimeClass {name!r} is not known: what it adds to the pod is left out, and if it "
            "does not exist, the API server refuses the pod"
        )
        return ClassFields(note=note)
    if refusal := conflict_with(found, overhead, selector):
        return ClassFields(refusal=f"the API server refuses the pod: {refusal}")
    fields = dict(_changed_fields(found, selector, tolerations, overhead))
    note = f"RuntimeClass {name!r} adds {', '.join(fields)} before the webhook is called"
    return ClassFields(fields, note=note if fields else "")


def _with_project(spec: _Spec, fields: ClassFields, project: Mapping[str, str]) -> ClassFields:
    """Return the fields of a class with the node selector of the pod's project."""
    selector = fields.spec.get("nodeSelector", spec.node_selector or {})
    if project.items() <= selector.items():
        return fields
    if any(selector.get(key, value) != value for key, value in project.items()):
        changed = fields.spec
        note = "the API server refuses the pod: its nodeSelector contradicts the namespace's"
    else:
        changed = {**fields.spec, "nodeSelector": {**selector, **project}}
        note = "the namespace's node selector is added before the webhook is called"
    return ClassFields(changed, note="; ".join(filter(None, (fields.note, note))))


def with_fields(pod: Any, fields: Mapping[str, Any]) -> Any:
    """Return a pod with other fields in its `spec`. `pod` is one that `class_fields` can read."""
    if not fields:
        return pod
    members, spec = pod, None
    if isinstance(pod, msgspec.Raw):
        members = _decode_fields(pod)
        spec = _decode_fields(members["spec"])
    return {**members, "spec": {**(spec or members["spec"]), **fields}}


def _changed_fields(
    runtime_class: RuntimeClassInfo,
    selector: Mapping[str, Any],
    tolerations: list[dict[str, Any]],
    overhead: Mapping[str, Any],
) -> Iterator[tuple[str, Any]]:
    """Yield the name and the new value of each field that the class changes."""
    if not runtime_class.node_selector.items() <= selector.items():
        yield "nodeSelector", {**selector, **runtime_class.node_selector}
    # A class with `scheduling` has the pod's own tolerations merged, too.
    if runtime_class.tolerations is not None:
        merged = _merge([*tolerations, *map(dict, runtime_class.tolerations)])
        if merged != tolerations:
            yield "tolerations", merged
    if runtime_class.overhead and not overhead:
        yield "overhead", dict(runtime_class.overhead)


def _merge(tolerations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tolerations without those that others cover. Of equal ones, the first is kept.

    Raises ValidationError for a malformed one.
    """
    if len(tolerations) > _MAX_TOLERATIONS:
        return tolerations
    values = [{k: v for k, v in each.items() if v is not None} for each in tolerations]
    parsed = msgspec.convert(values, list[_Toleration])
    kept: list[int] = []
    for index, toleration in enumerate(parsed):
        later = (each for each in parsed[index + 1 :] if each != toleration)
        others = chain((parsed[each] for each in kept), later)
        if not any(each.covers(toleration) for each in others):
            kept.append(index)
    return [tolerations[index] for index in kept]
