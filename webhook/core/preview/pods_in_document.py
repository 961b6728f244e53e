"""The search for the pods that a document contains or that its objects would create.

An object without a pod is reported too, with advice on what to preview instead. Lists such as those
of `kubectl get all` hold Services and ConfigMaps in addition to workloads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from webhook.core.constants import KIND
from webhook.core.json_path import json_path
from webhook.core.preview.controller_fields import (
    KINDS_WITH_PODS,
    add_controller_fields,
    fill_in_nulls,
)
from webhook.core.preview.document import Document, ValuePath, mapping_in
from webhook.core.preview.list_items import find_objects
from webhook.core.preview.unsupported_kinds import alternative_to, pods_selector, with_article

if TYPE_CHECKING:
    from webhook.core.policy.model import SettlePolicy

NODE_NAME_NOTE = (
    "the pod has a node already, so spec.nodeName is left out: a new pod may be scheduled to any "
    "node"
)

_DEPLOYMENT_CONFIG_GROUP = "apps.openshift.io"


@dataclass(frozen=True, slots=True)
class Workload:
    """A pod that an object is or would create."""

    kind: str
    name: str
    namespace: str | None
    path: str
    """Where the pod was found in its document, such as `items[2].spec.template`."""
    pod: dict[str, Any]
    created_pod: dict[str, Any]
    """The pod as its controller would create it. It also has the reference to its owner and the
    labels whose values only a cluster knows, such as hashes."""
    notes: tuple[str, ...] = ()
    """What differs between the object and the pod, for people."""

    def with_spec_fields(self, fields: Mapping[str, Any]) -> Workload:
        """Return a copy whose pod has other fields in its spec."""
        if not fields:
            return self
        return replace(self, pod={**self.pod, "spec": {**self.pod["spec"], **fields}})

    @property
    def title(self) -> str:
        """The kind and name for people, such as `CronJob/nightly`."""
        return f"{self.kind}/{self.name or '(unnamed)'}"


# No pydantic model, because the worker process of a preview starts without pydantic.
@dataclass(frozen=True, slots=True)
class ObjectWithoutPod:
    """An object for which no pod can be shown."""

    kind: str = field(metadata={"description": "Empty if the object has no kind."})
    name: str
    namespace: str = field(
        metadata={"description": "The namespace that the object names. Empty if it names none."}
    )
    source: str = field(metadata={"description": "The file, or `body` for the request's body."})
    line: int = field(
        metadata={"description": "The line of the source at which the object begins, from 1."}
    )
    path: str = field(
        metadata={
            "description": "The object's path in the document. Empty for the document itself."
        }
    )
    message: str = field(
        metadata={"description": "Why there is no pod, and what to preview instead."}
    )

    def __str__(self) -> str:
        """Return a line such as `pods.yaml:3: Service/web: a Service holds no pod`."""
        title = f"{self.kind}/{self.name or '(unnamed)'}: " if self.kind else ""
        return f"{self.source}:{self.line}: {title}{self.message}"


@dataclass(frozen=True, slots=True)
class PassedOver:
    """An object for which no pod can be shown, and what else is known of it."""

    shown: ObjectWithoutPod
    malformed: bool
    """Whether the object cannot be read. An object is malformed if it has no kind, lacks the pod
    template of its kind, has a pod template at a path that podsettle does not know, or is a policy
    with an error."""
    pods_selector: str = ""
    """The label selector of the pods that another system creates for the object."""
    policy: SettlePolicy | None = None
    """The object, if it is a valid policy."""


def pods_of(
    document: Document, template_path: str | None = None
) -> Iterator[Workload | PassedOver]:
    """Yield every pod and every object without a pod, in the order of the document.

    `template_path` is the path of the pod template in kinds that podsettle does not know, such as
    `spec.workers.template`. Raises nothing.
    """
    for value, steps in find_objects(document.value):
        if not isinstance(value, Mapping):
            message = f"{_subject(steps)} is not a Kubernetes object"
            yield PassedOver(_without_pod(document, steps, message), True)
        elif value.get("kind") == KIND:
            yield from _find_policy_errors(document, value, steps)
        else:
            yield _find_pod(document, value, template_path, steps)


def policies_in(document: Document) -> dict[str, SettlePolicy]:
    """Return the valid policies of a document by name. Of two with one name, the first counts."""
    policies: dict[str, SettlePolicy] = {}
    for found in pods_of(document):
        if isinstance(found, PassedOver) and found.policy is not None:
            policies.setdefault(found.shown.name, found.policy)
    return policies


def _without_pod(
    document: Document,
    steps: ValuePath,
    message: str,
    kind: str = "",
    name: str = "",
    namespace: str | None = None,
) -> ObjectWithoutPod:
    """Return an object, or a value in it, at a place in a document."""
    line, path = document.line(steps), json_path(steps)
    return ObjectWithoutPod(kind, name, namespace or "", document.source, line, path, message)


def _find_policy_errors(
    document: Document, value: Mapping[str, Any], object_steps: ValuePath
) -> Iterator[PassedOver]:
    """Yield one object for each error in a policy, or one for a policy that the preview uses."""
    # Imported here, because the imports of the model take longer than most previews, and few texts
    # contain a policy.
    from webhook.core.policy.model import parse_policy
    from webhook.core.policy.validation_errors import InvalidPolicyError

    name = _name_of(value)
    try:
        policy = parse_policy(value)
    except InvalidPolicyError as error:
        for each in error.errors:
            steps = (*object_steps, *each.path)
            yield PassedOver(_without_pod(document, steps, str(each), KIND, name), True)
    else:
        message = "a policy: this preview uses it as if it were applied"
        shown = _without_pod(document, object_steps, message, KIND, name)
        yield PassedOver(shown, False, policy=policy)


class _NoPodError(Exception):
    """No pod can be shown for an object. The message says why."""

    def __init__(self, message: str, *, malformed: bool = False) -> None:
        super().__init__(message)
        self.malformed = malformed


def _find_pod(
    document: Document,
    value: Mapping[str, Any],
    template_path: str | None,
    object_steps: ValuePath,
) -> Workload | PassedOver:
    """Return the pod of one object, or why there is none."""
    kind = value.get("kind")
    shown_kind = kind if isinstance(kind, str) else ""
    name, namespace = _name_of(value), _namespace_of(value)
    try:
        steps = _template_steps(value, shown_kind, template_path, object_steps)
    except _NoPodError as error:
        shown = _without_pod(document, object_steps, str(error), shown_kind, name, namespace)
        selector = pods_selector(_group_of(value), shown_kind, name)
        return PassedOver(shown, error.malformed, selector)
    pod = dict(value)
    if steps:
        template: Any = value
        for step in steps:
            template = template[step]
        metadata = dict(mapping_in(template, "metadata"))
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    notes: tuple[str, ...] = ()
    if mapping_in(pod, "metadata").get("uid") and pod["spec"].get("nodeName"):
        pod["spec"] = {key: inner for key, inner in pod["spec"].items() if key != "nodeName"}
        notes = (NODE_NAME_NOTE,)
    fill_in_nulls(pod)
    created_pod = add_controller_fields(value, shown_kind, name, pod)
    path = json_path((*object_steps, *steps))
    return Workload(shown_kind, name, namespace, path, pod, created_pod, notes)


def _template_steps(
    document: Mapping[str, Any], kind: str, template_path: str | None, object_steps: ValuePath
) -> tuple[str, ...]:
    """Return the steps to the pod template of an object, or none if the object is a pod.

    Raises _NoPodError.
    """
    if not kind:
        raise _NoPodError(
            f"{_subject(object_steps)} has no kind, so it is not a Kubernetes object; for a Helm "
            "chart or a Kustomize overlay, preview the output of helm template or kubectl "
            "kustomize",
            malformed=True,
        )
    if kind == "List":
        path = json_path((*object_steps, "items"))
        raise _NoPodError(f"{path} of this List is not a list", malformed=True)
    group = _group_of(document)
    alternative = alternative_to(group, kind, _name_of(document), _namespace_of(document) or "")
    if alternative is not None:
        raise _NoPodError(alternative)
    is_built_in = "." not in group or group.endswith(".k8s.io")
    given = None if template_path is None else tuple(template_path.split("."))
    if (is_built_in or group == _DEPLOYMENT_CONFIG_GROUP) and kind in KINDS_WITH_PODS:
        steps = KINDS_WITH_PODS[kind].template
    elif is_built_in and (given is None or _first_missing(document, given)):
        raise _NoPodError(f"{with_article(kind)} holds no pod")
    elif given is None or (not is_built_in and _first_missing(document, (*given, "spec"))):
        # The object is malformed only if it contains a pod template at another path. If it contains
        # none, its kind may have no pods, such as a Certificate. The template path may then be
        # meant for other objects of the input.
        other = _find_template(document)
        message = _no_template_message(document, kind, object_steps, given, other)
        raise _NoPodError(message, malformed=other is not None)
    else:
        steps = given
    if missing := _first_missing(document, (*steps, "spec")):
        raise _NoPodError(_missing_message(missing, kind, object_steps), malformed=True)
    return steps


def _group_of(document: Mapping[str, Any]) -> str:
    return str(document.get("apiVersion") or "").rpartition("/")[0]


def _missing_message(steps: ValuePath, kind: str, object_steps: ValuePath) -> str:
    return f"{json_path((*object_steps, *steps))} of this {kind} is missing or not a mapping"


def _no_template_message(
    document: Mapping[str, Any],
    kind: str,
    object_steps: ValuePath,
    steps: tuple[str, ...] | None,
    template_steps: ValuePath | None,
) -> str:
    """Return why no pod is shown for an object of a kind that podsettle does not know.

    `object_steps` lead to the object. `steps` is the template path that the caller gave.
    `template_steps` lead to a pod template that the object contains at another path.
    """
    missing = None
    if steps is not None:
        missing = _missing_message(_first_missing(document, (*steps, "spec")), kind, object_steps)
    unknown = f"podsettle does not know where {with_article(kind)} keeps its pod template"
    if template_steps is None:
        return missing or f"{unknown}; give the template path, if it has one, such as spec.template"
    path = json_path(template_steps)
    if not all(isinstance(step, str) and _KEY.fullmatch(step) for step in template_steps):
        return (
            f"{missing or unknown}; {path} has the shape of one, but no template path can lead "
            "there: preview a pod that was created from it: kubectl get pod NAME -o yaml"
        )
    if missing:
        return f"{missing}; the template path may be {path}"
    return f"{unknown}; give the template path, which may be {path}"


def _find_template(document: Mapping[str, Any]) -> ValuePath | None:
    """Return the steps to the topmost value with the shape of a pod template, or None.

    Takes time in proportion to the size of the object.
    """
    unvisited: list[tuple[ValuePath, Any]] = [
        ((key,), inner) for key, inner in document.items() if key not in ("metadata", "status")
    ]
    for steps, value in unvisited:
        if isinstance(value, Mapping):
            containers = mapping_in(value, "spec").get("containers")
            if isinstance(containers, list) and containers:
                return steps
        elif not isinstance(value, list):
            continue
        if len(steps) < _MAX_TEMPLATE_DEPTH:
            inner_values = value.items() if isinstance(value, Mapping) else enumerate(value)
            unvisited += [((*steps, step), inner) for step, inner in inner_values]
    return None


_KEY = re.compile("[A-Za-z0-9]{1,63}")
"""The keys that a template path may contain. A key with a dot would be ambiguous."""
_MAX_TEMPLATE_DEPTH = 10
"""The maximum depth of the search, in keys and indices. Custom resources have up to seven."""


def _first_missing(document: Mapping[str, Any], steps: ValuePath) -> ValuePath:
    """Follow steps into a document, and return those to the first value that is not a mapping.

    The result is empty if all values on the path are mappings.
    """
    value: Any = document
    for count, step in enumerate(steps, 1):
        value = value.get(step)
        if not isinstance(value, Mapping):
            return steps[:count]
    return ()


def _subject(object_steps: ValuePath) -> str:
    return json_path(object_steps) or "the document"


def _name_of(document: Mapping[str, Any]) -> str:
    metadata = mapping_in(document, "metadata")
    return str(metadata.get("name") or metadata.get("generateName") or "")


def _namespace_of(document: Mapping[str, Any]) -> str | None:
    namespace = mapping_in(document, "metadata").get("namespace")
    return namespace if isinstance(namespace, str) else None
