"""The policies of a cluster that `podsettle export` wrote, as far as the API server has them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from webhook.cluster.reader import ClusterReader
from webhook.cluster.rights import Right
from webhook.core.cluster.view import Namespace
from webhook.core.constants import (
    ANNOTATION_EXPORTED_BY,
    ANNOTATION_EXPORTED_DIGEST,
    ANNOTATION_EXPORTED_FROM,
    LABEL_NAMESPACE_NAME,
    SYSTEM_NAMESPACE_PREFIXES,
)
from webhook.core.export.native_policies import API_GROUP, API_VERSIONS, LABELS
from webhook.core.labels import Labels
from webhook.core.remedies import REMEDIES
from webhook.core.types import Json
from webhook.inspect.cluster_flags import Command, kubectl
from webhook.inspect.selectors import selector_matches


class PolicyApi(NamedTuple):
    """An API of the API server for policies in CEL."""

    kind: str
    plural: str
    versions: tuple[str, ...]
    """The versions that a native policy may have. The first one that is served counts."""


MUTATING = PolicyApi("MutatingAdmissionPolicy", "mutatingadmissionpolicies", tuple(API_VERSIONS))
VALIDATING = PolicyApi("ValidatingAdmissionPolicy", "validatingadmissionpolicies", ("v1",))


@dataclass(frozen=True, slots=True)
class ExportedPolicy:
    """A policy in a cluster that `podsettle export` wrote, with its bindings."""

    document: Json
    api: PolicyApi
    api_version: str
    """The version in which it was read, such as `v1beta1`."""
    bindings: tuple[Json, ...]

    @property
    def name(self) -> str:
        """The name of the object."""
        name: str = self.document["metadata"]["name"]
        return name

    @property
    def title(self) -> str:
        """The kind and the name for people."""
        return f"{self.api.kind} {self.name}"

    @property
    def source(self) -> str:
        """The name of the SettlePolicy. Empty if the annotation is missing."""
        return self._annotation(ANNOTATION_EXPORTED_FROM)

    @property
    def digest(self) -> str:
        """What `podsettle export` wrote about its SettlePolicies. Empty if it is missing."""
        return self._annotation(ANNOTATION_EXPORTED_DIGEST)

    @property
    def origin(self) -> str:
        """A clause that says which version wrote it, and from which SettlePolicy."""
        version = self._annotation(ANNOTATION_EXPORTED_BY) or "of an unknown version"
        source = f" from SettlePolicy {self.source}" if self.source else ""
        return f"exported by podsettle {version}{source}"

    @property
    def is_guard(self) -> bool:
        """Whether it only reports pods that left admission unsettled."""
        return self.api is VALIDATING and self.name.startswith(f"guard.{self.source}.")

    @property
    def remedies(self) -> tuple[str, ...]:
        """The remedies that it applies or reports, in the order of application."""
        names = {each["name"] for each in self.document["spec"].get("variables") or ()}
        return tuple(name for name in REMEDIES if name in names)

    @property
    def created(self) -> datetime | None:
        """When it was created."""
        text = self.document["metadata"].get("creationTimestamp")
        return datetime.fromisoformat(text) if text else None

    @property
    def removal(self) -> Command:
        """The command that removes it and its bindings."""
        return removal([self.document, *self.bindings], self.api)

    def missing_class(self, existing: Collection[str]) -> str:
        """Return the RuntimeClass whose absence puts it out of force. Empty if there is none."""
        names = [(each["spec"].get("paramRef") or {}).get("name", "") for each in self.bindings]
        missing = [name for name in names if name and name not in existing]
        return missing[0] if missing and len(missing) == len(names) else ""

    def selects(self, namespace: Namespace, labels: Labels, own_namespace: str | None) -> bool:
        """Return whether its selectors and its bindings select new pods with these labels.

        The conditions about other fields of the pod are CEL, which only the API server evaluates.
        """
        constraints = self.document["spec"].get("matchConstraints") or {}
        return (
            namespace.name != own_namespace
            and selector_matches(constraints.get("namespaceSelector"), namespace.labels)
            and selector_matches(constraints.get("objectSelector"), labels)
            and any(_includes(binding, namespace) for binding in self.bindings)
        )

    def _annotation(self, key: str) -> str:
        annotations: dict[str, str] = self.document["metadata"].get("annotations") or {}
        return annotations.get(key, "")


class ExportedPolicies(NamedTuple):
    """The native policies of one API."""

    api: PolicyApi
    policies: tuple[ExportedPolicy, ...] = ()
    orphans: tuple[Json, ...] = ()
    """The exported bindings of policies that do not exist."""
    is_served: bool = True
    """Whether the API server has the API."""


async def read_exported(reader: ClusterReader, api: PolicyApi) -> ExportedPolicies:
    """Read the native policies of an API.

    Raises NotAllowedError, and ApiError and Unreachable for other failures.
    """
    for version in api.versions:
        found = await reader.get(_right(api.plural), version=version)
        if found is None:
            continue
        # A binding that an operator wrote puts a policy in force too.
        bindings = await reader.get(_right(_bindings(api)), version=version) or {}
        return join(api, version, found.get("items") or [], bindings.get("items") or [])
    return ExportedPolicies(api, is_served=False)


def removal(documents: Iterable[Json], api: PolicyApi) -> Command:
    """Return the command that deletes policies and bindings of an API."""
    objects = (
        f"{api.kind.lower()}{'' if 'policyName' not in each['spec'] else 'binding'}/"
        f"{each['metadata']['name']}"
        for each in documents
    )
    return kubectl("delete", *objects)


def _right(plural: str) -> Right:
    return Right("list", API_GROUP, plural)


def _bindings(api: PolicyApi) -> str:
    return f"{api.kind.lower()}bindings"


def join(
    api: PolicyApi, version: str, policies: Sequence[Json], bindings: Iterable[Json]
) -> ExportedPolicies:
    """Return the native policies among all policies and bindings of an API."""
    by_policy: dict[str, list[Json]] = {}
    for binding in bindings:
        by_policy.setdefault(str(binding["spec"].get("policyName")), []).append(binding)
    names = {each["metadata"]["name"] for each in policies}
    return ExportedPolicies(
        api,
        tuple(
            ExportedPolicy(each, api, version, tuple(by_policy.get(each["metadata"]["name"], ())))
            for each in policies
            if is_exported(each)
        ),
        tuple(
            binding
            for name, found in by_policy.items()
            if name not in names
            for binding in found
            if is_exported(binding)
        ),
    )


def is_exported(document: Json) -> bool:
    """Return whether a policy or a binding has the label that `podsettle export` writes."""
    return LABELS.items() <= (document["metadata"].get("labels") or {}).items()


def _includes(binding: Json, namespace: Namespace) -> bool:
    """Return whether a binding includes a namespace.

    A protected namespace has to be named, as the match condition `not-protected` demands.
    """
    resources: dict[str, Any] = binding["spec"].get("matchResources") or {}
    selector = resources.get("namespaceSelector") or {}
    if namespace.name.startswith(SYSTEM_NAMESPACE_PREFIXES):
        named = (selector.get("matchLabels") or {}).get(LABEL_NAMESPACE_NAME) == namespace.name
        if not named and not any(
            each["key"] == LABEL_NAMESPACE_NAME
            and each["operator"] == "In"
            and namespace.name in each["values"]
            for each in selector.get("matchExpressions") or ()
        ):
            return False
    return selector_matches(selector, namespace.labels)
