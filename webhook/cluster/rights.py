"""Rights of the user on the API server (RBAC), and what could not be read without them.

"None found" and "not looked at" are different answers, so commands name what they could not read.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.core.types import Json

Permission: TypeAlias = Literal["allowed", "denied", "not known"]

# The resources among those that podsettle reads that belong to no namespace.
_CLUSTER_SCOPED = frozenset({
    "certificatesigningrequests",
    "customresourcedefinitions",
    "mutatingwebhookconfigurations",
    "namespaces",
    "nodes",
    "runtimeclasses",
    "settlepolicies",
    "subjectaccessreviews",
    "tokenreviews",
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
        where = f" in namespace {self.namespace}" if self.namespace else " in all namespaces"
        names = filter(None, (self.resource, self.name, self.subresource))
        return f"{self.verb} {'/'.join(names)}{where * self._is_namespaced}"

    @property
    def _is_namespaced(self) -> bool:
        return not self.resource.startswith("/") and self.resource not in _CLUSTER_SCOPED

    @property
    def command(self) -> tuple[tuple[str, ...]]:
        """The command that asks whether the user has the right: kubectl and its arguments."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        words = [self.verb, resource + (f"/{self.name}" if self.name else "")]
        if self.subresource:
            words.append(f"--subresource={self.subresource}")
        if self._is_namespaced:
            words += ["-n", self.namespace] if self.namespace else ["-A"]
        return (("kubectl", "auth", "can-i", *words),)

    def review_attributes(self) -> Json:
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


class Unread(NamedTuple):
    """Objects that could not be read."""

    resource: str
    """The plural name of the kind, such as `pods`."""
    right: Right
    """The right that reading takes."""
    other_cause: str = ""
    """Why they could not be read, if the user does not lack the right."""

    @property
    def is_denied(self) -> bool:
        """Whether the user lacks the right."""
        return not self.other_cause

    @property
    def why(self) -> str:
        """The cause, as a clause that follows the name of the objects."""
        return self.other_cause or f"it needs the right to {self.right}"


class NotAllowedError(Exception):
    """A request that the API server refused because the user lacks a right."""

    def __init__(self, right: Right) -> None:
        super().__init__(f"needs the right to {right}")
        self.right = right


async def access_to(server: ApiServer, right: Right) -> Permission:
    """Return whether the API server allows a right to the user.

    It is not known if the API server does not answer the question.
    """
    try:
        review = await create_review(server, "SelfSubjectAccessReview", right.review_attributes())
    except (ApiError, Unreachable):
        return "not known"
    return "allowed" if (review.get("status") or {}).get("allowed") else "denied"


async def create_review(server: ApiServer, kind: str, spec: Json) -> Json:
    """Create a review object. Return it with the status that the API server fills in.

    Raises ApiError and Unreachable.
    """
    group = "authentication" if kind == "TokenReview" else "authorization"
    api_version = f"{group}.k8s.io/v1"
    body = {"apiVersion": api_version, "kind": kind, "spec": spec}
    return await server.request("POST", f"/apis/{api_version}/{kind.lower()}s", body)
