"""The route GET /view: the policies in force and the namespaces, for the preview page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from typing import Any

import msgspec
from fastapi import APIRouter, HTTPException, Response
from pydantic import Field

from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.snapshot import Snapshot
from webhook.core.types import CamelCaseModel
from webhook.server.limits import ViewLimits
from webhook.server.preview.route import Problem
from webhook.server.response_in_pieces import PacedResponse


class PolicyInView(CamelCaseModel):
    """A SettlePolicy in force."""

    name: str
    action: str = Field(examples=["Mutate"])
    priority: int
    document: dict[str, Any] = Field(description="The SettlePolicy, without metadata but its name.")


class NamespaceInView(CamelCaseModel):
    """A namespace that podsettle knows."""

    name: str
    labels: dict[str, str]


class ViewAnswer(CamelCaseModel):
    """What podsettle sees of the cluster: the policies in force, and the namespaces."""

    policies: list[PolicyInView] = Field(description="In the order in which they take precedence.")
    policy_count: int = Field(description="The number of all policies, if `policies` is cut.")
    namespaces: list[NamespaceInView] = Field(description="In the order of their names.")
    namespace_count: int = Field(description="The number of all namespaces.")
    docs_url: str | None = Field(description="The page that explains podsettle's reason codes.")


class ViewAnswers:
    """The answers to GET /view, as JSON. The policies are encoded once for each set of policies."""

    def __init__(
        self, view: Callable[[], Snapshot], docs_url: str | None, limits: ViewLimits
    ) -> None:
        self._view = view
        self._docs_url = docs_url
        self._limits = limits
        self._policies: PolicySet | None = None
        self._encoded_policies: list[msgspec.Raw] = []
        self._answer_count = 0
        """The number of answers that are being sent."""

    def take(self) -> bytes:
        """Return an answer. The caller must release it. Raises HTTPException at the limit."""
        if self._answer_count >= self._limits.max_answers:
            raise HTTPException(503, f"{self._answer_count} answers are being sent; try again")
        view = self._view()
        if view.policies is not self._policies:
            self._policies = view.policies
            self._encoded_policies = self._cut(_encode_policies(view.policies, self._limits))
        # The mapping may change while another coroutine runs, so everything is read in one step.
        names = nsmallest(self._limits.max_namespaces, view.namespaces)
        answer = msgspec.json.encode(
            {
                "policies": self._encoded_policies,
                "policyCount": len(view.policies),
                "namespaces": self._cut(
                    msgspec.json.encode({"name": name, "labels": view.namespaces[name].labels})
                    for name in names
                ),
                "namespaceCount": len(view.namespaces),
                "docsUrl": self._docs_url,
            }
        )
        self._answer_count += 1
        return answer

    def release(self) -> None:
        """Count an answer as sent."""
        self._answer_count -= 1

    def _cut(self, items: Iterable[bytes]) -> list[msgspec.Raw]:
        """Return the items from the first one on, up to the limit of their total length."""
        kept: list[msgspec.Raw] = []
        length = 0
        for item in items:
            length += len(item)
            if length > self._limits.list_bytes:
                break
            kept.append(msgspec.Raw(item))
        return kept


def _encode_policies(policies: PolicySet, limits: ViewLimits) -> Iterator[bytes]:
    """Yield the JSON of the policies that take precedence over all others."""
    for policy in policies.by_precedence[: limits.max_policies]:
        yield msgspec.json.encode(
            {
                "name": policy.metadata.name,
                "action": policy.spec.action,
                "priority": policy.spec.priority,
                "document": msgspec.Raw(
                    policy.model_dump_json(by_alias=True, exclude_unset=True).encode()
                ),
            }
        )


def view_router(answers: ViewAnswers) -> APIRouter:
    """Return the router for GET /view."""
    router = APIRouter()

    @router.get(
        "/view",
        summary="The policies in force and the namespaces that podsettle knows",
        response_model=ViewAnswer,
        responses={
            503: {
                "description": "Too many answers are being sent, or the API server could not check "
                "the token.",
                "model": Problem,
            },
        },
    )
    async def get_view() -> Response:
        return PacedResponse(answers.take(), answers.release)

    return router
