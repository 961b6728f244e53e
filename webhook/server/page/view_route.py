"""The route GET /view: the policies in force and the namespaces, for the preview page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import lru_cache
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


def encode_view(view: Snapshot, docs_url: str | None, limits: ViewLimits) -> bytes:
    """Return the answer to GET /view as JSON."""
    # The mapping may change while another coroutine runs, so everything is read in one step.
    names = nsmallest(limits.max_namespaces, view.namespaces)
    namespaces = (
        msgspec.json.encode({"name": name, "labels": view.namespaces[name].labels})
        for name in names
    )
    return msgspec.json.encode(
        {
            "policies": _encode_policies(view.policies, limits),
            "policyCount": len(view.policies),
            "namespaces": _cut(namespaces, limits),
            "namespaceCount": len(view.namespaces),
            "docsUrl": docs_url,
        }
    )


@lru_cache(maxsize=1)
def _encode_policies(policies: PolicySet, limits: ViewLimits) -> list[msgspec.Raw]:
    """Return the JSON of the policies that take precedence over all others."""
    encoded = (
        msgspec.json.encode(
            {
                "name": policy.metadata.name,
                "action": policy.spec.action,
                "priority": policy.spec.priority,
                "document": msgspec.Raw(
                    policy.model_dump_json(by_alias=True, exclude_unset=True).encode()
                ),
            }
        )
        for policy in policies.by_precedence[: limits.max_policies]
    )
    return _cut(encoded, limits)


def _cut(items: Iterable[bytes], limits: ViewLimits) -> list[msgspec.Raw]:
    """Return the items from the first one on, up to the limit of their total length."""
    kept: list[msgspec.Raw] = []
    length = 0
    for item in items:
        length += len(item)
        if length > limits.list_bytes:
            break
        kept.append(msgspec.Raw(item))
    return kept


def view_router(answer: Callable[[], bytes], max_answers: int) -> APIRouter:
    """Return the router for GET /view, which sends up to `max_answers` at the same time."""
    router = APIRouter()
    answers = asyncio.Semaphore(max_answers)

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
        if answers.locked():
            raise HTTPException(503, f"{max_answers} answers are being sent; try again")
        encoded = answer()
        await answers.acquire()
        return PacedResponse(encoded, answers.release)

    return router
