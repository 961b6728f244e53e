"""Who may see the page, previews and metrics: bearers of a token that the API server lets pass."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from webhook.cluster.authorizer import Access, Authorizer
from webhook.server.lean_fastapi import HTTPException, Request

_HOW = (
    "send a token as `Authorization: Bearer TOKEN`; make one with: "
    "kubectl create token SERVICEACCOUNT -n NAMESPACE"
)
_HOW_IN_A_BROWSER = "or sign in with any user name and the token as the password"
_GRANT = (
    "grant it with: kubectl create clusterrole NAME --verb={verb} --non-resource-url={path}, "
    "and a clusterrolebinding"
)

BEARER = 'Bearer realm="podsettle"'
BASIC = 'Basic realm="podsettle: any user name, and a Kubernetes token as the password"'

Guard: TypeAlias = Callable[[Request], Awaitable[None]]


def guard(authorizer: Authorizer | None, challenge: str = BEARER) -> Guard:
    """A dependency for routes that ends requests of those who may not; without an authorizer none.

    `challenge` is how a client is told to say who it is. One of Basic makes browsers ask for a
    password, also where a script of a page sent the request and the page could ask better itself.
    """

    async def check(request: Request) -> None:
        if authorizer is None:
            return
        token = _token(request.headers.get("Authorization", ""))
        if token is None:
            detail = _HOW if challenge == BEARER else f"{_HOW}; {_HOW_IN_A_BROWSER}"
            raise HTTPException(401, detail, {"WWW-Authenticate": challenge})
        # Not `request.url.path`: older Starlette versions read that path out of the Host header.
        verb, path = request.method.lower(), request.scope["path"]
        access, note = await authorizer.authorize(token, verb, path)
        if access is Access.UNAUTHENTICATED:
            detail = f"the API server does not take this token: {note or 'invalid or expired'}"
            raise HTTPException(401, f"{detail}; {_HOW}", {"WWW-Authenticate": challenge})
        if access is Access.FORBIDDEN:
            raise HTTPException(403, f"{note}; {_GRANT.format(verb=verb, path=path)}")
        if access is Access.UNKNOWN:
            raise HTTPException(503, f"the API server cannot be asked about this token: {note}")

    return check


def _token(authorization: str) -> str | None:
    """The token in the header's value, or None where it holds none."""
    scheme, _, value = authorization.partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer":
        return value or None
    if scheme.lower() == "basic":
        try:
            decoded = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None
        return decoded.partition(":")[2].strip() or None
    return None
