"""Authentication and authorization by bearer token, for /preview, /view and /metrics.

The API server decides whether a token permits a request; see `webhook.cluster.token_review`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from webhook.cluster.access_decision import Access, AccessDecision

_BEARER_HINT = (
    "send a token as `Authorization: Bearer TOKEN`; make one with: "
    "kubectl create token SERVICEACCOUNT -n NAMESPACE"
)
_GRANT_HINT = (
    "grant access with: kubectl create clusterrolebinding NAME --clusterrole={role} "
    "--serviceaccount=NAMESPACE:SERVICEACCOUNT (the chart creates this ClusterRole; with another "
    "release name, its name begins with that name)"
)

# With a Basic challenge, browsers would open a password dialog, also for requests of a script.
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="podsettle"'}

BEARER = HTTPBearer(
    description="A token of the cluster: `kubectl create token SERVICEACCOUNT -n NAMESPACE`.",
    auto_error=False,
)
"""A dependency that reads tokens, and adds them to the OpenAPI document. It refuses nothing."""

Token: TypeAlias = Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]
Guard: TypeAlias = Callable[[Request, Token], Awaitable[None]]


def guard(authorize: Callable[[str, str, str, str], Awaitable[AccessDecision]]) -> Guard:
    """Return a FastAPI dependency that answers 401, 403 or 503 to unauthorized requests.

    `authorize` gets the token, the HTTP method in lower case, the path, and the client's address.
    """

    async def check(request: Request, token: Token) -> None:
        if token is None:
            raise HTTPException(401, _BEARER_HINT, _CHALLENGE)
        # Not `request.url.path`: older Starlette versions parse it from the Host header.
        verb, path = request.method.lower(), request.scope["path"]
        client = request.client.host if request.client else ""
        access, note = await authorize(token.credentials, verb, path, client)
        if access is Access.UNAUTHENTICATED:
            detail = f"the API server does not accept this token: {note or 'invalid or expired'}"
            raise HTTPException(401, f"{detail}; {_BEARER_HINT}", _CHALLENGE)
        if access is Access.FORBIDDEN:
            # The ClusterRoles of the chart.
            role = "podsettle-metrics-reader" if path == "/metrics" else "podsettle-previewer"
            raise HTTPException(403, f"{note}; {_GRANT_HINT.format(role=role)}")
        if access is Access.UNKNOWN:
            raise HTTPException(503, f"the API server could not check this token: {note}")

    return check
