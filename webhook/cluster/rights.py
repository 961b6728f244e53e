"""Rights of the user on the API server (RBAC), by name and by the API server's own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable

Permission: TypeAlias = Literal["allowed", "denied", "not known"]

_REVIEWS_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
# The resources among those that podsettle reads that belong to no namespace.
_CLUSTER_SCOPED = frozenset({
    "certificatesigningrequests",
    "clusterrolebindings",
    "clusterroles",
    "customresourcedefinitions",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "namespaces",
    "nodes",
    "runtimeclasses",
    "selfsubjectaccessreviews",
    "settlepolicies",
    "subjectaccessreviews",
    "tokenreviews",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
})  # fmt: skip


class Right(NamedTuple):
    """A verb on a resource, as RBAC grants it."""

    verb: str
    group: str
    """The API group. Empty for the core group, and for a path."""
    resource: str
    """The plural of the kind, or a path of the API server such as `/metrics`."""
    namespace: str | None = None
    """None for all namespaces, and for resources that belong to no namespace."""
    name: str | None = None
    """None for all objects."""
    subresource: str = ""

    def __str__(self) -> str:
        """Return the right for people, such as `list pods in all namespaces`."""
        if self.resource.startswith("/"):
            return f"{self.verb} {self.resource}"
        text = f"{self.verb} {self.resource}"
        if self.name:
            text += f"/{self.name}"
        if self.subresource:
            text += f"/{self.subresource}"
        if self.resource in _CLUSTER_SCOPED:
            return text
        return text + (
            f" in namespace {self.namespace}" if self.namespace else " in all namespaces"
        )

    @property
    def command(self) -> tuple[tuple[str, ...]]:
        """The command that asks whether the user has the right: kubectl and its arguments."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        words = [self.verb, resource + (f"/{self.name}" if self.name else "")]
        if self.subresource:
            words.append(f"--subresource={self.subresource}")
        if not self.resource.startswith("/") and self.resource not in _CLUSTER_SCOPED:
            words += ["-n", self.namespace] if self.namespace else ["-A"]
        return (("kubectl", "auth", "can-i", *words),)

    def review_attributes(self) -> dict[str, Any]:
        """Return the attributes of the right in the spec of a SelfSubjectAccessReview."""
        if self.resource.startswith("/"):
            return {"nonResourceAttributes": {"verb": self.verb, "path": self.resource}}
        attributes = {
            "verb": self.verb,
            "group": self.group,
            "resource": self.resource,
            "subresource": self.subresource,
            "namespace": self.namespace or "",
            "name": self.name or "",
        }
        return {"resourceAttributes": {key: value for key, value in attributes.items() if value}}


async def access_to(server: ApiServer, rights: Iterable[Right]) -> Mapping[Right, Permission]:
    """Return for each right whether the API server allows it to the user.

    A right is not known if the API server does not answer the question.
    """
    unique = list(dict.fromkeys(rights))
    answers = await asyncio.gather(*(_ask(server, right) for right in unique))
    return dict(zip(unique, answers, strict=True))


async def _ask(server: ApiServer, right: Right) -> Permission:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": right.review_attributes(),
    }
    try:
        answer = await server.request("POST", _REVIEWS_PATH, review)
    except (ApiError, Unreachable):
        return "not known"
    return "allowed" if (answer.get("status") or {}).get("allowed") else "denied"
